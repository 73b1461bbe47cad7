"""Send queues: rings without a producer index, whose entries have an ownership bit."""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.layout.blueflame import INDEX_MASK, INDEX_SHIFT
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.wqe import DS_MASK
from bluebridge.device.mlx4.rings.work_requests import EntryReader, slots_of
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.pairs.costs import COST_LIMIT
from bluebridge.device.rdma.pairs.engines import SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import CompletionStatus, PairState
from bluebridge.device.rdma.work import WorkError
from bluebridge.device.rings.blueflame import StoredRing
from bluebridge.device.rings.queue_buffer import QueueBuffer

BUDGET: Final = 64
"""Number of entries carried out in one turn, before other work of the server."""

_HEADER: Final = Struct(">II")
_FLUSHING: Final = (PairState.ERR, PairState.SQER)


class Walk(Enum):
    """Whether a doorbell begins a walk of the ring, which carries out its entries."""

    DUE = "at once"
    UNDER_WAY = "the one under way goes on"
    LATER = "one comes in a later turn"
    DEAF = "never: a fault by name"


class SendRing(StoredRing):
    """The send queue of one queue pair; `index` counts slots since RESET and never wraps.

    `reader` reads its entries for the `engine` of its queue pair, the `owner`. `base` is the byte
    offset of the ring in `buffer`, `shift` the logarithm of its stride. `rung`: a doorbell rang.
    """

    def __init__(
        self,
        bus: HostBus,
        owner: QueuePair,
        engine: SendEngine,
        reader: EntryReader,
        buffer: QueueBuffer,
        *,
        base: int,
        log_size: int,
        shift: int,
        page: int,
        what: What,
        faults: ArmedFaults,
    ) -> None:
        self._bus = bus
        self._faults = faults
        self._owner = owner
        self._engine = engine
        self._reader = reader
        self.buffer = buffer
        self.base = base
        self.log_size = log_size
        self.shift = shift
        self.page = page
        self.what = what
        self.index = 0
        self.rung = False
        self.walk = Walk.DUE
        self._given: bytes | None = None  # the next entry, when it need not be fetched

    def ring(self) -> None:
        self.rung = True
        self.run()

    def go_on(self) -> None:
        """Carry out or flush posted entries, if a doorbell ever rang for this queue.

        Before it the ring may be anything: mlx4_en stamps its entries after RTS only, the kernel
        leaves the ring of XRC targets zeroed, and zeros look valid (Linux `en_netdev.c:
        mlx4_en_start_port`, `ib/qp.c: __mlx4_ib_modify_qp`).
        """
        if self.rung:
            self.run()

    def run(self) -> None:
        if self.walk is not Walk.DUE:
            return
        # An answer that comes within the walk calls `go_on`: the walk goes on by itself.
        self.walk, more = Walk.UNDER_WAY, False
        try:
            more = self._walk()
        except DmaError as fault:
            # The ring is no memory any more, so its entries cannot be flushed: an event tells.
            qpn = self._owner.qpn
            self._bus.tell(Fact.SEND_QUEUE_LOST, qpn=qpn, reason=str(fault))
            self._owner.ring_lost()
        finally:
            self._engine.finish()
            self.walk = Walk.LATER if more else Walk.DUE
        if more:
            self._bus.call_soon(self._again)

    def accepts(self, word0: int) -> bool:
        return (
            word0 >> INDEX_SHIFT & INDEX_MASK == self.index & INDEX_MASK
            and word0 >> 31 == self.index >> self.log_size & 1
            and self._owner.state is PairState.RTS
            and self.walk is Walk.DUE
        )

    def push(self, entry: bytes) -> None:
        self._given = entry
        self.ring()
        self._given = None  # one that had to wait is read from the ring when its time comes

    def _again(self) -> None:
        if self.walk is Walk.LATER:
            self.walk = Walk.DUE
        self._owner.spent = 0
        if self._owner.state is not PairState.RST:
            self.run()

    def _walk(self) -> bool:
        """Carry out entries; returns True if the budget ran out before the ring did.

        One answer can cause the next walk, so what messages cost adds up over all walks. Whether
        another entry follows is looked up before one is carried out: software that sees its
        completion posts the next one at once, and that has a doorbell of its own.
        """
        owner, engine = self._owner, self._engine
        header, known = None, False
        for _ in range(BUDGET):
            if owner.spent >= COST_LIMIT:
                return True
            state = owner.state
            if state is PairState.RTS:
                if engine.blocked():
                    if owner.state is PairState.RTS:
                        return owner.spent >= COST_LIMIT  # the rest of a large send
                    continue  # what was blocked failed
                if self._given is not None:
                    self._execute_given(self._given)
                    header, known = None, True
                    continue
                if not known:
                    header, known = self._peek(self.index), True
                if header is None:
                    return False
                end = self.index + slots_of(header, self.shift)
                following = self._peek(end)
                self._execute(header, end)
                header = following
            elif state not in _FLUSHING or not self._flush_one():
                return False
        return True

    def _flush_one(self) -> bool:
        """Fail the next entry; returns False if there is none.

        One that is longer than the ring takes all of it: more could lead to itself again.
        """
        header = self._peek(self.index)
        if header is None:
            return False
        index = self.index
        self.index += min(slots_of(header, self.shift), 1 << self.log_size)
        self._owner.completions.fail_send(index, CompletionStatus.WR_FLUSH_ERR)
        return True

    def _peek(self, index: int) -> int | None:
        """Return dword 1 of an entry if software posted it, else None; not in the log."""
        slot = index & ((1 << self.log_size) - 1)
        address = self.buffer.address(self.base + (slot << self.shift))
        views = self._bus.views([(address, _HEADER.size)])
        # two views where a border of memory regions cuts the header
        word0, word1 = _HEADER.unpack(views[0] if len(views) == 1 else b"".join(views))
        return None if word0 >> 31 != index >> self.log_size & 1 else word1

    def _execute(self, word1: int, end: int) -> None:
        """Read the body, now that the ownership bit was seen, and hand it to the engine."""
        index, self.index = self.index, end
        length = (word1 & DS_MASK) * 16
        size = 1 << (self.log_size + self.shift)
        if not length or length > size:
            self.reject(index, f"an entry of {length} bytes")
            return
        qpn, start = self._owner.qpn, (index & ((1 << self.log_size) - 1)) << self.shift
        self._bus.concern(qpn, index)
        raw = self.buffer.read(self.base + start, min(length, size - start), self.what, qpn)
        if start + length > size:  # it goes on at the beginning of the ring
            raw += self.buffer.read(self.base, start + length - size, self.what, qpn)
        # The header was read before for the length; the guest may have written another one since.
        if raw[0] >> 7 != index >> self.log_size & 1 or raw[7] & DS_MASK != word1 & DS_MASK:
            self.reject(index, "the entry changed while it was read")
            return
        self._hand_over(raw, index)

    def _execute_given(self, entry: bytes) -> None:
        """Carry out an entry of BlueFlame, whose VLAN fields are ignored: they held the QPN."""
        self._given = None
        index = self.index
        self.index = index + slots_of(entry[7], self.shift)
        self._bus.concern(self._owner.qpn, index)
        self._hand_over(b"%b\0\0\0%b" % (entry[:4], entry[7:]), index)

    def _hand_over(self, raw: bytes, index: int) -> None:
        """Give an entry to the engine, or report to it that the entry makes no sense."""
        try:
            work = self._reader.read(raw, index)
            if self._faults.requests and (
                reason := self._faults.refusal(self._owner.qpn, work.operation)
            ):
                raise WorkError(reason)
        except WorkError as error:
            self._engine.refuse(index, error)
        else:
            self._engine.execute(work)

    def reject(self, index: int, reason: str) -> None:
        """Fail an entry that makes no sense, as a local operation error when its turn comes."""
        qpn = self._owner.qpn
        self._bus.concern(qpn, index)
        self._bus.tell(Fact.WORK_REFUSED, qpn=qpn, index=index, reason=reason)
        self._hand_over(b"", index)
