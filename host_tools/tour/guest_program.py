"""A queue pair in each guest: `guest_program.py ask WORD` writes to the memory of `serve`.

WORD is `write`, `event` (wait for an interrupt instead of polling) or `key` (with a wrong key).
Addresses, numbers and keys cross on standard output and input, one line each way.
"""

import sys

from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import AccessFlags, QpInit, QpType, SendWr, Sge, WrOpcode

role, word = sys.argv[1:]
with open_device(open_bus()) as device:
    memory = device.allocate(4096)
    pd = device.alloc_pd()
    mr = pd.reg_mr(memory.address, 4096, access=AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)
    channel = device.create_comp_channel()
    cq = device.create_cq(16, channel)
    qp = pd.create_qp(QpInit(QpType.RC, cq, cq))
    qp.modify_init(AccessFlags.REMOTE_WRITE)

    print(device.address.hex(), qp.qpn, memory.address, mr.rkey, flush=True)
    address, peer, target, key = sys.stdin.readline().split()
    qp.modify_rtr(device.address_vector(bytes.fromhex(address)), int(peer))
    qp.modify_rts()

    if role == "serve":
        print("ready", flush=True)
        sys.stdin.readline()  # until the other side is done
        print("memory of the server:", bytes(memory.view[:8]), file=sys.stderr)
    else:
        sys.stdin.readline()  # until the other side can receive: it would be silent before
        memory.view[:8] = b"a bridge"
        if word == "event":
            cq.req_notify()
        rkey = int(key) ^ (0xFF00 if word == "key" else 0)
        place = [Sge(memory.address, 8, mr.lkey)]
        qp.post_send(SendWr(1, WrOpcode.RDMA_WRITE, place, remote_addr=int(target), rkey=rkey))
        if word == "event":
            assert channel.get_event(10) is cq
        while not (done := cq.poll(1)):
            pass
        print("RDMA_WRITE:", done[0].status.name, file=sys.stderr)
        print("done", flush=True)
