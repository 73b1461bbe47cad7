"""A thousand pages that are paged on demand, written and read by a peer.

Runs in both guests, by rdma-core's pyverbs: `paged_memory.py` has the pages, `paged_memory.py
ADDRESS` reaches them. Nobody has touched the pages that are written; those that are read were
taken away after they had been filled, as were the reader's own. Several queue pairs are busy at a
time.
"""

import ctypes
import json
import mmap
import os
import socket
import sys
import time
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT = 18515
PAGE = 4096
PAGES = 500
"""Of each kind: those that are written, and those that are read."""
PAIRS = 4
WITHIN = 1000
"""Where a message begins in its page."""
LENGTH = 2000
GID_INDEX = 3
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_ON_DEMAND
)  # fmt: skip

context = Context(name="mlx5_0")
pd = PD(context)


def pattern(number: int) -> bytes:
    """The bytes of a page."""
    return number.to_bytes(4, "big") * (LENGTH // 4)


class Memory:
    """Pages on demand; those of a file keep what they have while they are not mapped."""

    def __init__(self, pages: int) -> None:
        file = os.memfd_create("pages")
        os.ftruncate(file, pages * PAGE)
        self.map = mmap.mmap(file, pages * PAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.mr = MR(pd, pages * PAGE, ACCESS, address=self.address)

    def forget(self) -> None:
        """Take all pages away."""
        self.map.madvise(mmap.MADV_DONTNEED)


def attributes(told: dict[str, Any]) -> QPAttr:
    """How a queue pair reaches its peer."""
    route = GlobalRoute(dgid=GID(told["gid"]), sgid_index=GID_INDEX)
    attr = QPAttr(port_num=1)
    attr.path_mtu, attr.qp_access_flags = e.IBV_MTU_1024, ACCESS & ~e.IBV_ACCESS_ON_DEMAND
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 17, 7, 7, 1
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    return attr


def connect(pairs: list[QP], other: socket.socket, **more: object) -> dict[str, Any]:
    """Make the queue pairs ready; what the other side tells."""
    mine = {
        "qpns": [qp.qp_num for qp in pairs],
        "gid": str(context.query_gid(1, GID_INDEX)),
        **more,
    }
    lines = other.makefile("rw")
    print(json.dumps(mine), file=lines, flush=True)
    told: dict[str, Any] = json.loads(lines.readline())
    for qp, number in zip(pairs, told["qpns"], strict=True):
        attr = attributes(told)
        attr.dest_qp_num = number
        qp.to_rts(attr)
    print("ready", file=lines, flush=True)
    lines.readline()
    return told


def made(cq: CQ) -> list[QP]:
    """Queue pairs that complete in one queue."""
    init = {"qp_type": e.IBV_QPT_RC, "scq": cq, "rcq": cq, "sq_sig_all": 1}
    return [QP(pd, QPInitAttr(cap=QPCap(max_send_wr=32), **init)) for _ in range(PAIRS)]


def serve() -> None:
    """Have the pages; what was written is compared at the end."""
    written, read = Memory(PAGES), Memory(PAGES)
    for page in range(PAGES):
        read.map[page * PAGE + WITHIN : page * PAGE + WITHIN + LENGTH] = pattern(~page & 0xFFFF)
    read.forget()
    pairs = made(CQ(context, 16))
    with socket.create_server(("", PORT)) as listener:
        other = listener.accept()[0]
    places = {name: (each.address, each.mr.rkey) for name, each in
              (("written", written), ("read", read))}  # fmt: skip
    connect(pairs, other, **places)
    assert other.recv(4) == b"done"
    for page in range(PAGES):
        at = page * PAGE + WITHIN
        assert written.map[at : at + LENGTH] == pattern(page), f"page {page}"
    other.sendall(b"good")


def reach(address: str) -> socket.socket:
    """Return a connection to the other side, which may begin later."""
    while True:
        try:
            return socket.create_connection((address, PORT))
        except ConnectionRefusedError:
            time.sleep(0.1)


def carry_out(pairs: list[QP], cq: CQ, opcode: int, own: Memory, place: list[int]) -> None:
    """Write or read each page, up to eight at a time on each queue pair."""
    address, key = place
    posted = done = 0
    under_way = [0] * PAIRS
    while done < PAGES:
        while posted < PAGES and under_way[posted % PAIRS] < 8:
            at = posted * PAGE + WITHIN
            work = SendWR(
                posted, num_sge=1, sg=[SGE(own.address + at, LENGTH, own.mr.lkey)], opcode=opcode
            )
            work.set_wr_rdma(key, address + at)
            pairs[posted % PAIRS].post_send(work)
            under_way[posted % PAIRS] += 1
            posted += 1
        for wc in cq.poll(32)[1]:
            assert wc.status == e.IBV_WC_SUCCESS, wc
            under_way[wc.wr_id % PAIRS] -= 1
            done += 1


def use(address: str) -> None:
    """Write all pages of one kind, and read those of the other."""
    cq = CQ(context, 256)
    pairs, source, target = made(cq), Memory(PAGES), Memory(PAGES)
    for page in range(PAGES):
        source.map[page * PAGE + WITHIN : page * PAGE + WITHIN + LENGTH] = pattern(page)
    source.forget()
    with reach(address) as other:
        told = connect(pairs, other)
        begun = time.monotonic()
        carry_out(pairs, cq, e.IBV_WR_RDMA_WRITE, source, told["written"])
        carry_out(pairs, cq, e.IBV_WR_RDMA_READ, target, told["read"])
        seconds = time.monotonic() - begun
        for page in range(PAGES):
            at = page * PAGE + WITHIN
            assert target.map[at : at + LENGTH] == pattern(~page & 0xFFFF), f"page {page}"
        other.sendall(b"done")
        assert other.recv(4) == b"good"
    print(f"{2 * PAGES} pages in {seconds:.2f} s")


if len(sys.argv) > 1:
    use(sys.argv[1])
else:
    serve()
sys.stdout.flush()
os._exit(0)
