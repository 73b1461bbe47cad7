"""Many pairs of connected queue pairs between two HCAs, each of which can write to the other."""

from __future__ import annotations

import time

from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpInit,
    QpType,
    SendFlags,
    SendWr,
    Sge,
    WrOpcode,
)
from bluebridge.guest.verbs.interface import QueuePair

REMOTE = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
_DEPTH = 4
"""Entries of either work queue."""
_PAGE = 4096
_PSN = 5


class _End:
    """One adapter: a completion queue for all its queue pairs, a page that the peer may write."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(2 * _DEPTH)
        self.memory = device.allocate(_PAGE)
        self.mr = self.pd.reg_mr(self.memory.address, _PAGE, access=REMOTE)

    def pair(self) -> QueuePair:
        """A queue pair in INIT."""
        qp = self.pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, _DEPTH, _DEPTH))
        qp.modify_init(REMOTE)
        return qp

    def connect(self, qp: QueuePair, peer: _End, qpn: int) -> None:
        """From INIT to RTS, towards queue pair `qpn` of `peer`."""
        there = self.device.address_vector(peer.device.address)
        qp.modify_rtr(there, qpn, _PSN, min_rnr_timer=1)
        qp.modify_rts(_PSN)


class Writers:
    """Queue pairs of adapter `a`, each connected to one of adapter `b`. `target` is end b's PD."""

    def __init__(self, a: Device, b: Device) -> None:
        self._a, self._b = _End(a), _End(b)
        self._pairs: list[QueuePair] = []
        piece = Sge(self._a.memory.address, 8, self._a.mr.lkey)
        self._request = SendWr(0, WrOpcode.RDMA_WRITE, [piece], SendFlags.SIGNALED)
        self._request.remote_addr = self._b.memory.address
        self.target = self._b.pd
        self.rkey = self._b.mr.rkey

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self) -> None:
        """One more pair of queue pairs."""
        ours, theirs = self._a.pair(), self._b.pair()
        self._a.connect(ours, self._b, theirs.qpn)
        self._b.connect(theirs, self._a, ours.qpn)
        self._pairs.append(ours)

    def come_and_go(self) -> None:
        """Make a queue pair and destroy it."""
        self._a.pair().destroy()

    def write(self, index: int, rkey: int | None = None) -> float:
        """Write 8 bytes by queue pair `index`; seconds until the completion was polled.

        `rkey` is a key of `target` for the same addresses.
        """
        request, poll = self._request, self._a.cq.poll
        request.rkey = self.rkey if rkey is None else rkey
        begin = time.perf_counter()
        self._pairs[index].post_send(request)
        while not poll(1):
            pass
        return time.perf_counter() - begin
