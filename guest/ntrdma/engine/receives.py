"""The receive queue of an own queue pair; its entries are copied to the peer as they are posted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.engine.completions import CompletionQueue
from bluebridge.guest.ntrdma.engine.memory import Ring, advanced, distance, pack_receive, recv_size
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.regions import total
from bluebridge.guest.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.enums import WcFlags, WcOpcode, WcStatus
from bluebridge.guest.verbs.values import RecvWr, Sge, Wc

_KINDS = {
    WorkCode.SEND: (WcOpcode.RECV, WcFlags(0)),
    WorkCode.SEND_INVALIDATE: (WcOpcode.RECV, WcFlags.WITH_INV),
    WorkCode.SEND_IMMEDIATE: (WcOpcode.RECV, WcFlags.WITH_IMM),
    WorkCode.WRITE_IMMEDIATE: (WcOpcode.RECV_RDMA_WITH_IMM, WcFlags.WITH_IMM),
}
_STATUSES = {
    WorkStatus.RECV_OVERFLOW: WcStatus.LOC_LEN_ERR,
    WorkStatus.RECV_PROTECTION: WcStatus.LOC_PROT_ERR,
    WorkStatus.INVALIDATION: WcStatus.MW_BIND_ERR,
}


class ReceiveQueue:
    """A queue of up to `capacity` receives of `pieces` pieces, counted until polled.

    `next` is the index of the receive that the peer's next send must name.
    """

    def __init__(
        self, transport: Transport, qpn: int, capacity: int, pieces: int, cq: CompletionQueue
    ) -> None:
        self.capacity, self.pieces = max(1, capacity), pieces
        self.next = 0
        self._most = capacity
        self._qpn = qpn
        self._cq = cq
        self._ring = Ring(transport, self.capacity, recv_size(pieces))
        self._posted: deque[tuple[int, Sequence[Sge]]] = deque()
        self._post = self._pushed = 0
        self.used = 0
        """The number of receives that were posted and not polled."""
        self._done: deque[Wc] = deque()
        cq.attach(self)

    @property
    def ring_bytes(self) -> int:
        """The size in bytes of the twin's ring at the peer."""
        return self.capacity * self._ring.size

    # -- posting --------------------------------------------------------------------------------

    def post(self, wr: RecvWr) -> None:
        """Take a receive. Raises `VerbsError`."""
        if self.used >= self._most:
            raise VerbsError(f"the receive queue of {self._most} entries is full")
        if len(wr.sg_list) > self.pieces:
            raise VerbsError(f"{len(wr.sg_list)} pieces do not fit into a receive entry")
        self.used += 1
        self._posted.append((wr.wr_id, tuple(wr.sg_list)))
        self._ring.put(self._post, pack_receive(wr.sg_list))
        self._post = advanced(self._post, 1, self.capacity)

    def push(self, peer: Peer, entries: int, produced: int) -> None:
        """Copy what was posted to the peer's ring at `entries`, whose index is at `produced`."""
        count = distance(self._pushed, self._post, self.capacity)
        if count:
            self._ring.push(entries, self._pushed, count)
            self._pushed = self._post
            peer.publish_quietly(produced, self._post)

    def twin_is_new(self) -> None:
        """Start the ring anew at index 0, as the peer's empty ring."""
        receives = list(self._posted)
        self.next = self._post = self._pushed = 0
        for _, pieces in receives:
            self._ring.put(self._post, pack_receive(pieces))
            self._post = advanced(self._post, 1, self.capacity)

    # -- completing -----------------------------------------------------------------------------

    def complete(
        self,
        key: int,
        op: WorkCode,
        status: WorkStatus,
        length: int,
        immediate: int,
        solicited: bool,
    ) -> bool:
        """Complete receive `key`, used by the peer; False if not the next, or too small."""
        if not self._posted or key != self.next or key == self._post:
            return False
        wr_id, pieces = self._posted[0]
        if op is not WorkCode.WRITE_IMMEDIATE and length > total(pieces):
            return False
        self._posted.popleft()
        self.next = advanced(self.next, 1, self.capacity)
        opcode, flags = _KINDS[op]
        if status is not WorkStatus.OK:
            wc = Wc(wr_id, _STATUSES[status], WcOpcode.RECV, self._qpn)
        else:
            wc = Wc(wr_id, WcStatus.SUCCESS, opcode, self._qpn, length, immediate, flags)
        self._add(wc, solicited=solicited or status is not WorkStatus.OK)
        return True

    def flush(self) -> None:
        """End all receives that are posted."""
        while self._posted:
            wr_id, _ = self._posted.popleft()
            self._add(Wc(wr_id, WcStatus.WR_FLUSH_ERR, WcOpcode.RECV, self._qpn), solicited=True)
        self.next = self._pushed = self._post

    def take_back(self) -> list[RecvWr]:
        """Remove all receives that are posted, for a shared queue."""
        receives = [RecvWr(wr_id, pieces) for wr_id, pieces in self._posted]
        self.used -= len(receives)
        self._posted.clear()
        return receives

    def clear(self) -> None:
        """Forget everything, completions too."""
        self._posted.clear()
        self._done.clear()
        self.used = self.next = self._post = self._pushed = 0

    def close(self) -> None:
        """Free the ring."""
        self._cq.detach(self)
        self._ring.free()

    @property
    def outstanding(self) -> int:
        """The number of receives that wait for a message."""
        return len(self._posted)

    def _add(self, wc: Wc, *, solicited: bool) -> None:
        self._done.append(wc)
        self._cq.added(solicited=solicited)

    # -- as a source of completions --------------------------------------------------------------

    def collect(self) -> None:
        """Do nothing: receives are completed as the peer's sends are served."""

    @property
    def waiting(self) -> bool:
        return bool(self._done)

    def take(self) -> Wc | None:
        if not self._done:
            return None
        self.used -= 1
        return self._done.popleft()
