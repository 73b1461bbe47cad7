"""The requester of a connection that sends packets (InfiniBand vol. 1, 9.7.5, 9.8.2 and 9.9.2).

Events come in as calls, what is to be done goes out as `actions`, in order. There is no clock and
no memory inside: the owner runs the one timer, and loads and stores bytes packet by packet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from bluebridge.device.layout.net.roce import (
    PSN_MASK,
    RNR_TIMER_US,
    BthOpcode,
    Syndrome,
    ack_timeout_us,
)
from bluebridge.device.packets.segmentation import opcode_of
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.retry import HALF, NAK_STATUS, packets_of
from bluebridge.device.rdma.vocabulary import ATOMICS, READ, CompletionStatus
from bluebridge.device.rdma.work import SendWork

FOREVER: Final = 7
"""RNR retry count that stands for retries without limit."""

_KIND: Final = 0x60
_FINAL_DATA: Final = (BthOpcode.RC_READ_RESPONSE_LAST, BthOpcode.RC_READ_RESPONSE_ONLY)


@dataclass(frozen=True, slots=True)
class Send:
    """A packet goes out."""

    packet: TransportPacket


@dataclass(frozen=True, slots=True)
class SetTimer:
    """The timer runs for so many seconds from now, instead of what it ran for; None: it stops."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Completed:
    """A work request is done; `status` is None or its error."""

    work: SendWork
    status: CompletionStatus | None


@dataclass(frozen=True, slots=True)
class Recall:
    """Packets that went out and still wait somewhere on this side are not wanted any more."""


Action = Send | Recall | SetTimer | Completed


class LocalFailure(Exception):
    """Memory that a work request names is not accessible."""


class LocalMemory(Protocol):
    """The memory of the requester's side; both may raise `LocalFailure`."""

    def load(self, work: SendWork, offset: int, length: int) -> bytes:
        """Return bytes of a message that is sent."""

    def store(self, work: SendWork, offset: int, data: bytes | memoryview) -> None:
        """Store bytes that a read or an atomic brought."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in the context of a queue pair; `window` is the most packets without an answer.

    The acknowledge time-out is 4.096 us * 2^`timeout` * `time_factor`: a guest on a slow processor
    may need more time than hardware. Without `reliable` nothing is answered, and a window is how
    much leaves before the timer, which runs out at once, permits more.
    """

    mtu: int = 1024
    timeout: int = 14
    retries: int = 7
    rnr_retries: int = 7
    reads: int = 16
    window: int = 128
    ack_every: int = 64
    time_factor: float = 1.0
    reliable: bool = True


class PacketRequester:
    """The requests of one connection, oldest first in `pending`.

    `oldest` is the PSN that is acknowledged next, `due` the one that is sent next, `fresh` the
    first that was never sent. Going back sets `due` to `oldest`: within a read, that asks for the
    rest of it.
    """

    def __init__(self, limits: Limits, psn: int, memory: LocalMemory) -> None:
        self._limits = limits
        self._memory = memory
        self.oldest = self.due = self.fresh = self.next_psn = psn
        self.pending: deque[SendWork] = deque()
        self.actions: list[Action] = []
        self.waiting = False
        self.failed = False
        self._cursor = 0  # index in `pending` of the request that `due` belongs to
        self._broken: SendWork | None = None  # its memory is gone: it fails in its turn
        self.retries = self.rnr_retries = 0
        self._resumed = -1  # PSN that the last going back began at
        self._running = False

    # -- events -------------------------------------------------------------------------------

    def post(self, work: SendWork) -> None:
        """Take a work request, and send what the window permits."""
        if self.failed:
            self.actions.append(Completed(work, CompletionStatus.WR_FLUSH_ERR))
            return
        work.psn = self.next_psn
        work.packets = packets_of(work.length, self._limits.mtu)
        self.next_psn = work.psn + work.packets & PSN_MASK
        self.pending.append(work)
        self._pump()

    def expired(self) -> None:
        """Go on after the timer has run out: an answer is missing, or a receiver may be ready."""
        self._running = False
        if self.failed:
            return
        if self.waiting:
            self.waiting = False
            self._go_back()
        elif self.pending and self._limits.reliable:
            self._resumed = -1
            self._again()
        self._pump()

    def receive(self, packet: TransportPacket) -> None:
        """Take an answer; what answers nothing that is under way is ignored."""
        try:
            self._receive(packet)
        except LocalFailure:
            self._fail(CompletionStatus.LOCAL_PROT_ERR)

    def _receive(self, packet: TransportPacket) -> None:
        ahead = packet.psn - self.oldest & PSN_MASK
        if self.failed or ahead >= self.fresh - self.oldest & PSN_MASK:
            return
        if packet.opcode == BthOpcode.RC_ACK and not packet.syndrome:
            self._acknowledge(packet.psn + 1 & PSN_MASK)
        elif self._acknowledge(packet.psn):
            if packet.opcode == BthOpcode.RC_ACK:
                self._refused(packet.syndrome)
            elif packet.opcode == BthOpcode.RC_ATOMIC_ACK:
                self._take_atomic(packet)
            else:
                self._take_data(packet)
        self._pump()

    # -- sending ------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what may be sent, and let the timer run while an answer is missing."""
        while not self.failed and not self.waiting and self._cursor < len(self.pending):
            work = self.pending[self._cursor]
            if self.due - self.oldest & PSN_MASK >= self._limits.window or self._must_wait(work):
                break
            try:
                self._send(work)
            except LocalFailure:
                self._broken = work
            if work is self._broken:
                break
        if not self._limits.reliable:
            self._acknowledge(self.due)
        if not self.failed and self.pending and self.pending[0] is self._broken:
            self._fail(CompletionStatus.LOCAL_PROT_ERR)
        if not self.waiting and not self.failed:
            self._watch()

    def _must_wait(self, work: SendWork) -> bool:
        if not work.returns_data or self._cursor < self._limits.reads:
            return False
        before = (self.pending[index] for index in range(self._cursor))
        return sum(other.returns_data for other in before) >= self._limits.reads

    def _send(self, work: SendWork) -> None:
        index = self.due - work.psn & PSN_MASK
        packet = self._packet(work, index)
        taken = work.packets - index if work.operation == READ else 1
        self.due = self.due + taken & PSN_MASK
        if index + taken == work.packets:
            self._cursor += 1
        if self.due - self.fresh & PSN_MASK < HALF:
            self.fresh = self.due
        full = self.due - self.oldest & PSN_MASK >= self._limits.window
        wanted = packet.ack or full or not self.due % self._limits.ack_every
        packet.ack = wanted and self._limits.reliable
        self.actions.append(Send(packet))

    def _packet(self, work: SendWork, index: int) -> TransportPacket:
        """Return packet `index` of a request; of a read the request for all from there on."""
        mtu, last = self._limits.mtu, work.packets - 1
        offset, psn = index * mtu, work.psn + index & PSN_MASK
        if work.operation == READ:
            return TransportPacket(
                BthOpcode.RC_READ_REQUEST,
                psn,
                ack=True,
                va=work.remote_address + offset,
                rkey=work.rkey,
                length=work.length - offset,
                srqn=work.srqn,
                index=work.index,
            )
        payload = b""
        if not work.returns_data:
            payload = self._memory.load(work, offset, min(mtu, work.length - offset))
        return TransportPacket(
            opcode_of(work.operation, index, work.packets),
            psn,
            payload,
            ack=index == last,
            solicited=work.solicited and index == last,
            va=work.remote_address,
            rkey=work.rkey,
            length=work.length,
            operand=work.atomic[0],
            compare=work.atomic[1],
            immediate=work.immediate,
            srqn=work.srqn,
            index=work.index,
        )

    def _watch(self) -> None:
        """Start the timer when an answer is missing and it does not run; stop it when none is."""
        if not self._limits.reliable:
            self.actions.append(SetTimer(0 if self.pending else None))
            return
        missing = self.due != self.oldest
        if missing == self._running:
            return
        microseconds = ack_timeout_us(self._limits.timeout) * self._limits.time_factor
        if missing and not microseconds:
            return
        self._running = missing
        self.actions.append(SetTimer(microseconds / 1e6 if missing else None))

    # -- answers ------------------------------------------------------------------------------

    def _acknowledge(self, psn: int) -> bool:
        """Acknowledge everything before a PSN; False if the answer to a read was lost before it."""
        start = self.oldest
        while self.pending and psn - self.oldest & PSN_MASK:
            work = self.pending[0]
            if work.returns_data:
                if psn - work.psn & PSN_MASK >= work.packets:
                    self._progress(start)
                    self._again()
                    return False
                break
            end = work.psn + work.packets & PSN_MASK
            if psn - end & PSN_MASK >= HALF:
                self.oldest = psn
                break
            self.oldest = end
            self._done(None)
        self._progress(start)
        return True

    def _progress(self, start: int) -> None:
        """Reset timer and counters if anything from `start` on was acknowledged."""
        if self.oldest == start:
            return
        self.retries = self.rnr_retries = 0
        self._resumed = -1
        self._running = False
        self.actions.append(SetTimer(None))
        self.waiting = False
        if self.due - self.oldest & PSN_MASK >= HALF:
            self._rewind()

    def _done(self, status: CompletionStatus | None) -> None:
        work = self.pending.popleft()
        self._cursor = max(self._cursor - 1, 0)
        self.actions.append(Completed(work, status))

    def _refused(self, syndrome: int) -> None:
        kind = syndrome & _KIND
        if syndrome == Syndrome.NAK_PSN:
            if not self.waiting:
                self._again()
        elif kind == Syndrome.RNR_NAK:
            self._not_ready(syndrome & 0x1F)
        elif syndrome in NAK_STATUS:
            self._fail(NAK_STATUS[syndrome])

    def _take_atomic(self, packet: TransportPacket) -> None:
        head = self.pending[0]
        if head.operation not in ATOMICS or packet.psn != self.oldest:
            self._fail(CompletionStatus.BAD_RESP_ERR)
            return
        self._memory.store(head, 0, packet.original.to_bytes(8, "little"))
        self._advance(head)

    def _take_data(self, packet: TransportPacket) -> None:
        head, mtu = self.pending[0], self._limits.mtu
        if packet.psn != self.oldest:
            self._again()  # the data before these were lost
            return
        index = packet.psn - head.psn & PSN_MASK
        expected = min(mtu, head.length - index * mtu)
        ends = packet.opcode in _FINAL_DATA
        last = index == head.packets - 1
        if head.operation != READ or len(packet.payload) != expected or ends != last:
            self._fail(CompletionStatus.BAD_RESP_ERR)
            return
        self._memory.store(head, index * mtu, packet.payload)
        self._advance(head)

    def _advance(self, head: SendWork) -> None:
        """Go on behind the one PSN that an answer of a read or an atomic has brought."""
        start, self.oldest = self.oldest, self.oldest + 1 & PSN_MASK
        if self.oldest == head.psn + head.packets & PSN_MASK:
            self._done(None)
        self._progress(start)

    # -- trouble ------------------------------------------------------------------------------

    def _rewind(self) -> None:
        self.due, self._cursor = self.oldest, 0
        self.actions.append(Recall())

    def _go_back(self) -> None:
        self._rewind()
        self._resumed = self.oldest

    def _again(self) -> None:
        """Go back to the oldest packet without an answer, once for each loss that is noticed."""
        if self._resumed == self.oldest:
            return
        if self.retries >= self._limits.retries:
            self._fail(CompletionStatus.TRANSPORT_RETRY_EXC_ERR)
            return
        self.retries += 1
        self._running = False
        self._go_back()

    def _not_ready(self, code: int) -> None:
        if self.waiting:
            return
        if self.rnr_retries >= self._limits.rnr_retries != FOREVER:
            self._fail(CompletionStatus.RNR_RETRY_EXC_ERR)
            return
        self.rnr_retries += 1
        self.waiting = self._running = True
        self.actions.append(Recall())
        self.actions.append(SetTimer(RNR_TIMER_US[code] / 1e6))

    def _fail(self, status: CompletionStatus) -> None:
        """Complete the oldest request in error and flush the rest."""
        self.failed = True
        self.actions.append(SetTimer(None))
        self._done(status)
        while self.pending:
            self._done(CompletionStatus.WR_FLUSH_ERR)
