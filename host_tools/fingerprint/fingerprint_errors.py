"""Work requests that fail, each with the status and the vendor syndrome of its completion.

Runs where the card is: `python3 fingerprint_errors.py DEVICE`, by rdma-core's pyverbs. Each error
has a pair of queue pairs of its own, both on the first port, connected to each other.
"""

import sys

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LENGTH = 64
MOST_LOOKS = 10_000_000
"""Looks at a completion queue before an error counts as one that did not come."""

STATUSES = {
    getattr(e, name): name.removeprefix("IBV_WC_")
    for name in dir(e)
    if name.startswith("IBV_WC_") and name.endswith(("_ERR", "_SUCCESS"))
}

context = Context(name=sys.argv[1])
pd = PD(context)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)


class Side:
    """One queue pair with a completion queue of its own."""

    def __init__(self) -> None:
        self.cq = CQ(context, 16)
        cap = QPCap(max_send_wr=8, max_recv_wr=8)
        self.qp = QP(
            pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        )

    def connect(self, number: int) -> None:
        """Make the queue pair ready to send to the one with that number."""
        attr = QPAttr(port_num=1)
        attr.dest_qp_num, attr.path_mtu = number, e.IBV_MTU_1024
        attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 12, 1, 0, 1
        self.qp.to_rts(attr)

    def receive(self, length: int) -> None:
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf, length, mr.lkey)]))

    def send(self, *, lkey: int = mr.lkey, rkey: "int | None" = None) -> None:
        """Post a send, or with a remote key a write."""
        opcode = e.IBV_WR_SEND if rkey is None else e.IBV_WR_RDMA_WRITE
        request = SendWR(num_sge=1, sg=[SGE(mr.buf, LENGTH, lkey)], opcode=opcode)
        if rkey is not None:
            request.set_wr_rdma(rkey, mr.buf)
        self.qp.post_send(request)

    def told(self) -> str:
        """Return status and vendor syndrome of the next completion."""
        for _ in range(MOST_LOOKS):
            found = self.cq.poll(1)[1]
            if found:
                status = STATUSES.get(found[0].status, found[0].status)
                return f"{status}, vendor syndrome {found[0].vendor_err:#04x}"
        return "no completion"


def pair() -> "tuple[Side, Side]":
    one, other = Side(), Side()
    one.connect(other.qp.qp_num)
    other.connect(one.qp.qp_num)
    return one, other


one, other = pair()
other.receive(LENGTH // 2)
one.send()
print("a message longer than the receive, sender:", one.told())
print("a message longer than the receive, receiver:", other.told())
one.send()
print("a request behind one that failed:", one.told())

one, other = pair()
one.send(lkey=mr.lkey ^ 0xABCD00)
print("a local key that is none:", one.told())

one, other = pair()
one.send(rkey=mr.rkey ^ 0xABCD00)
print("a remote key that is none:", one.told())

one, other = pair()
one.send()
print("no receive at the peer:", one.told())

one, other = Side(), Side()
one.connect(other.qp.qp_num)  # the other one stays as it was made, and does not answer
one.send()
print("a peer that does not answer:", one.told())
