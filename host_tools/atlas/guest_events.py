"""A queue pair that writes to itself for so many seconds, and prints events and errors.

Runs in a guest: `python3 guest_events.py SECONDS`. All of it is rdma-core's pyverbs. A child waits
for events, since pyverbs keeps Python's lock while it does.
"""

import os
import signal
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.fork import fork_init
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, SendWR

fork_init()  # or the first write after the fork would move this process off the adapter's pages
ctx = Context(name=os.listdir("/sys/class/infiniband")[0])
pd, cq = PD(ctx), CQ(ctx, 64)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=16)))
cap = QPCap(max_send_wr=16)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=cap, sq_sig_all=1))
route = GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0)
attr = QPAttr(port_num=1)
attr.dest_qp_num, attr.path_mtu = qp.qp_num, e.IBV_MTU_1024
attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
qp.to_rts(attr)

child = os.fork()
if not child:
    while True:
        print("event", ctx.get_async_event().event_type, flush=True)

deadline = time.monotonic() + float(sys.argv[1])
status = 0
while time.monotonic() < deadline and not status:
    wr = SendWR(num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)], opcode=e.IBV_WR_RDMA_WRITE)
    wr.set_wr_rdma(mr.rkey, mr.buf)
    qp.post_send(wr)
    while not (found := cq.poll(1)[1]):
        pass
    status = found[0].status
time.sleep(0.1)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
if status:
    print(f"Failed status ({status})", flush=True)
os._exit(min(1, status))  # destroying waits for acknowledgements of events that the child has
