"""Numbered messages into a completion queue that another thread resizes all the while.

Runs in both guests, by rdma-core's pyverbs: `resized_queue.py` receives, `resized_queue.py ADDRESS`
sends. The receives are of a shared receive queue. What comes must be each number once, in order.
"""

import json
import random
import socket
import sys
import threading
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 18515
MESSAGES = 700
WAITING = 31
SIZES = [(1 << log_size) - 1 for log_size in range(5, 13)]
GID_INDEX = 3

sys.setswitchinterval(0.0002)
context = Context(name="mlx4_0")
pd = PD(context)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)


def connect(qp: QP, other: socket.socket) -> None:
    """Tell the other side what it must know of `qp`, hear the same, and make it ready."""
    mine = {"qpn": qp.qp_num, "gid": str(context.query_gid(1, GID_INDEX))}
    lines = other.makefile("rw")
    print(json.dumps(mine), file=lines, flush=True)
    told = json.loads(lines.readline())
    route = GlobalRoute(dgid=GID(told["gid"]), sgid_index=GID_INDEX)
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu = told["qpn"], e.IBV_MTU_1024
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 1
    qp.to_rts(attr)
    print("ready", file=lines, flush=True)
    lines.readline()


def receive() -> None:
    """Poll each number, and leave the queue alone now and then so that it fills."""
    cq = CQ(context, WAITING)
    srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=WAITING)))
    for slot in range(WAITING):
        srq.post_recv(RecvWR(slot, 1, [SGE(mr.buf + 8 * slot, 8, mr.lkey)]))
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=QPCap()))
    with socket.create_server(("", PORT)) as listener:
        connect(qp, listener.accept()[0])
    resizes, over = 0, threading.Event()

    def resize() -> None:
        nonlocal resizes
        while not over.is_set():
            cq.resize(random.choice(SIZES))
            resizes += 1

    thread = threading.Thread(target=resize)
    thread.start()
    number = 0
    try:
        while number < MESSAGES:
            if not random.randrange(20):
                over.wait(0.02)
            for wc in cq.poll(random.randint(1, WAITING))[1]:
                assert wc.status == e.IBV_WC_SUCCESS, wc
                found = int.from_bytes(mr.read(8, 8 * wc.wr_id), "big")
                assert found == number, f"{found} in place of {number}"
                number += 1
                srq.post_recv(RecvWR(wc.wr_id, 1, [SGE(mr.buf + 8 * wc.wr_id, 8, mr.lkey)]))
    finally:
        over.set()
        thread.join()
    assert cq.poll(WAITING)[0] == 0
    print("resizes:", resizes)


def reach(address: str) -> socket.socket:
    """Return a connection to the other side, which may begin later."""
    while True:
        try:
            return socket.create_connection((address, PORT))
        except ConnectionRefusedError:
            time.sleep(0.1)


def send(address: str) -> None:
    """Post each number as soon as there is room."""
    cq = CQ(context, 64)
    cap = QPCap(max_send_wr=32, max_inline_data=8)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1))
    with reach(address) as other:
        connect(qp, other)
    posted = done = 0
    while done < MESSAGES:
        while posted < MESSAGES and posted - done < 32:
            mr.write(posted.to_bytes(8, "big"), 8)
            work = SendWR(posted, num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)])
            work.send_flags = e.IBV_SEND_INLINE
            qp.post_send(work)
            posted += 1
        for wc in cq.poll(32)[1]:
            assert wc.status == e.IBV_WC_SUCCESS, wc
            done += 1


if len(sys.argv) > 1:
    send(sys.argv[1])
else:
    receive()
