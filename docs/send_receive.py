"""Send and receive between two guests: `send_receive.py send` in one, `receive` in the other.

What each must know of the other goes over standard output and input, one line each way.
"""

import sys

from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import QpInit, QpType, RecvWr, SendWr, Sge, WcStatus

with open_device(open_bus()) as device:
    memory = device.allocate(4096)
    pd = device.alloc_pd()
    mr = pd.reg_mr(memory.address, 4096)
    cq = device.create_cq(16)
    qp = pd.create_qp(QpInit(QpType.RC, cq, cq))
    qp.modify_init()
    qp.post_recv(RecvWr(1, [Sge(memory.address, 4096, mr.lkey)]))

    print(device.address.hex(), qp.qpn, flush=True)
    address, peer = sys.stdin.readline().split()
    qp.modify_rtr(device.address_vector(bytes.fromhex(address)), int(peer))
    qp.modify_rts()

    if sys.argv[1] == "send":
        memory.view[:5] = b"hello"
        qp.post_send(SendWr(2, sg_list=[Sge(memory.address, 5, mr.lkey)]))
    while not (done := cq.poll(1)):
        pass
    assert done[0].status is WcStatus.SUCCESS, done[0]
    print(done[0].opcode.name, bytes(memory.view[:5]), file=sys.stderr)
