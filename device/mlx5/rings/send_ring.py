"""Send queues: blocks of 64 bytes, up to the counter in the doorbell record."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.layout.blueflame import INDEX_MASK, INDEX_SHIFT
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.wqe import BLOCK_BYTES, DS_MASK, SEGMENT_BYTES
from bluebridge.device.mlx5.rings.work_requests import read_frame
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.pairs.costs import COST_LIMIT
from bluebridge.device.rdma.pairs.engines import SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import NOP, CompletionStatus, PairState
from bluebridge.device.rdma.work import SendWork, WorkError
from bluebridge.device.rings.blueflame import StoredRing
from bluebridge.device.rings.queue_buffer import QueueBuffer

BUDGET: Final = 64
"""Number of entries carried out in one turn, before other work of the server."""
COUNTER_MASK: Final = 0xFFFF
RECORD_OFFSET: Final = 4
"""Place of the send counter in a doorbell record."""
_SEGMENTS: Final = BLOCK_BYTES // SEGMENT_BYTES
_HEADER: Final = Struct(">II")
_FLUSHING: Final = (PairState.ERR, PairState.SQER)


class SendRing(StoredRing):
    """The entries of one send queue for the `engine` of the `owner`, as its `reader` reads them.

    `index` counts blocks that were carried out and `head` those that were posted at the last look
    at the record. Neither wraps: the log tells the entries of different laps apart by them.
    """

    def __init__(
        self,
        bus: HostBus,
        owner: QueuePair,
        engine: SendEngine,
        buffer: QueueBuffer,
        log_size: int,
        record: int,
        faults: ArmedFaults,
        *,
        page: int,
        reader: Callable[[bytes, int], SendWork] = read_frame,
        what: What = What.FRAME_WQE,
    ) -> None:
        self._faults = faults
        self.deaf = False
        """Whether a fault by name lets it ignore its doorbells."""
        self._bus = bus
        self._owner = owner
        self._engine = engine
        self._reader = reader
        self.page = page
        self.what = what
        self.buffer = buffer
        self.log_size = log_size
        self.record = record + RECORD_OFFSET
        self.index = 0
        self.head = 0
        self._rung = False  # whether a doorbell rang since the last look at the record
        self._given: bytes | None = None  # the next entry, when it need not be fetched
        self._running = False
        self._scheduled = False

    def restart(self) -> None:
        """Begin anew at the first block, with none posted."""
        self.index = self.head = 0
        self._rung = False

    def ring(self) -> None:
        """Take a doorbell, which has no effect in RST: carry out posted entries."""
        if self._owner.state is not PairState.RST:
            self._rung = True
            self.run()

    def go_on(self) -> None:
        """Carry out or flush posted entries."""
        self.run()

    def accepts(self, word0: int) -> bool:
        return (
            word0 >> INDEX_SHIFT & INDEX_MASK == self.index & INDEX_MASK
            and self.head == self.index
            and not (self._rung or self._running or self._scheduled or self.deaf)
            and self._owner.state is PairState.RTS
        )

    def push(self, entry: bytes) -> None:
        self._given = entry
        self.run()
        self._keep()

    def _keep(self) -> None:
        """Read an entry that has to wait from the ring when its time comes.

        A function of its own, since the compiler holds what was pushed to be there still.
        """
        if self._given is not None:
            self._given, self._rung = None, True

    def stores_follow(self, most: int) -> bool:
        """Return True if software stores an entry such as the next one whole, in place of ringing.

        So libmlx5 does with inline data of at most `most` bytes, and Linux' test with entries of no
        operation (`core/wc.c: mlx5_wc_post_nop`). It reads memory without a line in the log.
        """
        try:
            length = self._segments(self.index) * SEGMENT_BYTES
            if not 0 < length <= min(most, BLOCK_BYTES << self.log_size):
                return False
            work = self._reader(self._peek(length), self.index)
        except (WorkError, DmaError):
            return False
        return work.operation == NOP or any(isinstance(part, bytes) for part in work.parts)

    def _peek(self, length: int) -> bytes:
        """Return the next entry, which may go on at the start of the ring; not in the log."""
        size = BLOCK_BYTES << self.log_size
        start = self.index * BLOCK_BYTES & (size - 1)
        first = min(length, size - start)
        runs = self.buffer.runs(start, first) + self.buffer.runs(0, length - first)
        return b"".join(self._bus.views(runs))

    def run(self) -> None:
        """Carry out posted entries up to a budget; the rest follows soon.

        The record is read after doorbells only. Without one it may still be that of the time before
        a reset: Linux starts its counter anew without a look at it (`en_main.c:
        mlx5e_reset_txqsq_cc_pc`).
        """
        if self._running or self._scheduled or self.deaf:
            return
        if not self._rung and self.head == self.index and self._given is None:
            return
        self._running = True
        try:
            more = self._walk()
        except DmaError as fault:
            # The ring is no memory any more, so its entries cannot be flushed: an event tells.
            qpn = self._owner.qpn
            self._bus.tell(Fact.SEND_QUEUE_LOST, qpn=qpn, reason=str(fault))
            self._owner.ring_lost()
            return
        finally:
            self._engine.finish()
            self._running = False
        if more:
            self._scheduled = True
            self._bus.call_soon(self._again)

    def _again(self) -> None:
        self._scheduled = False
        self._owner.spent = 0
        if self._owner.state is not PairState.RST:
            self.run()

    def _walk(self) -> bool:
        """Carry out entries; returns True if the budget ran out before the ring did."""
        owner, engine = self._owner, self._engine
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
                elif self._posted():
                    self._execute()
                else:
                    return False
            elif state not in _FLUSHING or not self._flush_one():
                return False
        return True

    def _posted(self) -> bool:
        """Return True if a block is posted; a doorbell has the record read when all are done."""
        if self.head != self.index:
            return True
        if not self._rung:
            return False
        self._rung = False  # what is posted after this look has a doorbell of its own
        return self._look()

    def _look(self) -> bool:
        """Read the doorbell record; returns True if it holds a new number.

        A look that finds nothing new stays out of the log.
        """
        word = b"".join(self._bus.views([(self.record, 4)]))
        new = (int.from_bytes(word[2:], "big") - self.head) & COUNTER_MASK
        if not new:
            return False
        self.head += new
        qpn = self._owner.qpn
        self._bus.concern(qpn, self.index)
        self._bus.note_dma(Kind.DMA_READ, self.record, 4, word, What.DOORBELL_RECORD, qpn)
        return True

    def _flush_one(self) -> bool:
        """Fail the next entry; returns False if there is none."""
        if not self._posted():
            return False
        index = self.index
        self._advance(self._segments(index))
        self._owner.completions.fail_send(index, CompletionStatus.WR_FLUSH_ERR)
        return True

    def _segments(self, index: int) -> int:
        """Return the size of the entry at a block in segments of 16 bytes; not in the log."""
        slot = index & ((1 << self.log_size) - 1)
        views = self._bus.views([(self.buffer.address(slot * BLOCK_BYTES), _HEADER.size)])
        word1: int = _HEADER.unpack(views[0] if len(views) == 1 else b"".join(views))[1]
        return word1 & DS_MASK

    def _advance(self, segments: int) -> None:
        """Pass an entry, but nothing behind the posted blocks: it may claim any size."""
        blocks = max(1, -(-segments // _SEGMENTS))
        self.index += min(blocks, self.head - self.index)

    def _execute(self) -> None:
        """Read the next entry and hand it to the engine."""
        index, segments = self.index, self._segments(self.index)
        self._bus.concern(self._owner.qpn, index)
        posted = self.head - index
        length = segments * SEGMENT_BYTES
        self._advance(segments)
        try:
            if not segments or length > min(posted, 1 << self.log_size) * BLOCK_BYTES:
                raise WorkError(f"an entry of {length} bytes")
            size, qpn = BLOCK_BYTES << self.log_size, self._owner.qpn
            start = index * BLOCK_BYTES & (size - 1)
            raw = self.buffer.read(start, min(length, size - start), self.what, qpn)
            if start + length > size:  # it goes on at the beginning of the ring
                raw += self.buffer.read(0, start + length - size, self.what, qpn)
            # The size was read before: the guest may have written another one since.
            if raw[7] & DS_MASK != segments:
                raise WorkError("the entry changed while it was read")
        except WorkError as error:
            self._engine.refuse(index, error)
        else:
            self._hand_over(raw, index)

    def _execute_given(self, entry: bytes) -> None:
        """Carry out an entry of BlueFlame, behind which none is known to be posted."""
        self._given = None
        index, segments = self.index, entry[7] & DS_MASK
        self.index = self.head = index + -(-segments // _SEGMENTS)
        self._bus.concern(self._owner.qpn, index)
        self._hand_over(entry, index)

    def _hand_over(self, raw: bytes, index: int) -> None:
        """Give an entry to the engine, or report to it that the entry makes no sense."""
        try:
            work = self._reader(raw, index)
            if self._faults.requests and (
                reason := self._faults.refusal(self._owner.qpn, work.operation)
            ):
                raise WorkError(reason)
        except WorkError as error:
            self._engine.refuse(index, error)
        else:
            self._engine.execute(work)
