"""The requester of a connection, without I/O (InfiniBand vol. 1, 9.7.5, 9.8.2 and 9.9.2).

Work requests, answers and the end of its one timer come in as calls. Units to send, requests that
are done and the time that the timer has to run are asked of it. A unit is a packet of the path MTU
or, on a network of messages, a message or a part of one: the owner makes it of the memory that the
work request names.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from bluebridge.device.layout.net.roce import PSN_MASK, RNR_TIMER_US, Syndrome, ack_timeout_us
from bluebridge.device.rdma.vocabulary import LOCAL, READ, CompletionStatus
from bluebridge.device.rdma.work import SendWork

HALF: Final = 1 << 23
"""Half of the PSN space: a PSN less than this ahead of another is later, any other is earlier."""
FOREVER: Final = 7
"""RNR retry count that stands for retries without limit."""
WINDOW: Final = 128
"""Number of requests that may wait for an answer at the same time."""
HOLD_SECONDS: Final = 0.001
"""Seconds between offers of a request that met RNR timer code 0.

The code means 655.36 ms, and the RDMA connection manager sets it. Where such a request is held, it
is offered again every millisecond, or as often as the port's `OFFER_SECONDS` permit, and a retry
counts as used only after the 655.36 ms.
"""
KEEP: Final = -1.0
"""In place of the seconds of a timer: it runs, or does not, as before."""
STOP: Final = -2.0
"""In place of the seconds of a timer: it does not run any more."""

NAK_STATUS: Final = {
    int(Syndrome.NAK_INVALID_REQUEST): CompletionStatus.REMOTE_INVAL_REQ_ERR,
    int(Syndrome.NAK_REMOTE_ACCESS): CompletionStatus.REMOTE_ACCESS_ERR,
    int(Syndrome.NAK_REMOTE_OPERATION): CompletionStatus.REMOTE_OP_ERR,
    int(Syndrome.NAK_INVALID_RD): CompletionStatus.BAD_RESP_ERR,
}
"""Completion status by syndrome of the NAK."""
KIND: Final = 0x60
"""The bits of a syndrome that tell an ACK, an RNR NAK and a NAK apart."""


def packets_of(length: int, mtu: int) -> int:
    """Count the packets that a message of `length` bytes takes; an empty one takes one."""
    return (length + mtu - 1) // mtu or 1


class Sending(Enum):
    """Whether the next unit may go out."""

    OPEN = "now"
    NOT_READY = "when the receiver's time is over"
    LATER = "in a later turn"
    ABSENT = "when pages are there that its request needs"
    ENDED = "never again"


class Watch(Enum):
    """The states of the one timer that the owner of a requester runs for it."""

    STOPPED = 0
    RUNS = 1
    STALE = 2
    """It runs for what is over."""


@dataclass(slots=True)
class Limits:
    """The limits in the context of a queue pair, and of its network.

    A unit is up to `part` packets of one message or, where there are no `packets`, a whole message;
    one of more than `whole` bytes moves in parts of `part` packets then, and alone. `window` is the
    most packets without an answer. The acknowledge time-out is 4.096 us * 2^`timeout` *
    `time_factor`, `least` seconds or more: a guest on a slow processor may need more time than
    hardware. Without `reliable` nothing is answered, and a window is how much leaves in one turn.
    `held`: a receiver with RNR timer code 0 is offered its request every `HOLD_SECONDS`.
    """

    mtu: int = 1024
    timeout: int = 14
    retries: int = 7
    rnr_retries: int = 7
    reads: int = 16
    window: int = 128
    time_factor: float = 1.0
    least: float = 0.0
    reliable: bool = True
    packets: bool = True
    whole: int = 1 << 32
    part: int = 1
    held: bool = False


class Requester:
    """The requests of one connection, oldest first in `pending`, those that are over in `done`.

    `oldest` is the PSN that is acknowledged next, `due` the one that is sent next, `fresh` the
    first that was never sent, `next_psn` that of the next request. Going back sets `due` to
    `oldest`: within a read, that asks for the rest of it.

    `index`, `packets` and `first` are of the unit that was given out last: its place in its
    request, how many PSNs it takes, and whether it goes out for the first time. `troubles` counts
    repetitions of any reason, `reads` the reads and atomics that wait for data, `offered` seconds
    of offers to a receiver with timer code 0.
    """

    def __init__(self, limits: Limits, psn: int) -> None:
        self.limits = limits
        self.oldest = self.due = self.fresh = self.next_psn = psn
        self.pending: deque[SendWork] = deque()
        self.done: deque[SendWork] = deque()
        self.state = Sending.OPEN
        self.retries = self.rnr_retries = self.troubles = 0
        self.index = self.packets = self.reads = 0
        self.first = True
        self.delay = 0.0
        self.offered = 0.0
        self.failure: CompletionStatus | None = None
        self._cursor = 0  # index in `pending` of the request that `due` belongs to
        self._begun = 0
        self._resumed = -1  # PSN that the last going back began at
        self._given = 0  # units without an answer to come, in this turn
        self._watch = Watch.STOPPED

    @property
    def idle(self) -> bool:
        """True while no request has begun, and none is about to fail."""
        return self.oldest == self.next_psn and not (self.pending and self.pending[-1].status > 0)

    @property
    def blocked(self) -> bool:
        """True while an entry that follows had better not be looked at."""
        return self.state is not Sending.OPEN or self._cursor < len(self.pending)

    @property
    def ready(self) -> bool:
        """True if a unit may go out now, unless its request has to wait."""
        return self.state is Sending.OPEN and self._cursor < len(self.pending)

    @property
    def begun(self) -> list[SendWork]:
        """The requests that have begun to go out and are not done."""
        return list(islice(self.pending, self._begun))

    # -- what goes out --------------------------------------------------------------------------

    def post(self, work: SendWork) -> None:
        """Take a work request; one with a status fails in its turn, a negative one as it begins."""
        if self.state is Sending.ENDED:
            work.status = CompletionStatus.WR_FLUSH_ERR
            self.done.append(work)
            return
        self._given = 0
        self.pending.append(work)

    def next_unit(self, *, begin: bool = True) -> SendWork | None:
        """Give out the next unit of the request that is returned; None if it has to wait.

        A local operation has no packets: the owner calls `carried_out` or `break_off` after it.
        Without `begin` only requests go on that have begun.
        """
        limits = self.limits
        if not limits.reliable and self.due != self.oldest:
            self._acknowledge(self.due)
        if self.state is not Sending.OPEN or self._cursor >= len(self.pending):
            return None
        work = self.pending[self._cursor]
        fresh = self.due == self.next_psn
        if fresh and work.status <= 0:
            if not begin or (self._cursor and self._must_wait(work)):
                return None
            work.status = -work.status
        if work.status:
            if not self._cursor:
                self.fail(CompletionStatus(work.status))
            return None
        if fresh and work.operation in LOCAL:
            self.packets = 0
            return work
        room = self._room(work)
        if room <= 0:
            return None
        if fresh:
            work.psn = self.next_psn
            work.packets = packets_of(work.length, limits.mtu)
            self.next_psn = (work.psn + work.packets) & PSN_MASK
            self._begun += 1
            self.reads += work.returns_data
        self._give(work, room)
        return work

    def _must_wait(self, work: SendWork) -> bool:
        """Return True while a request may not begin because of those before it."""
        if work.operation in LOCAL or self._cursor >= WINDOW:
            return True  # invalidation and registration wait for whoever may use the region
        whole = self.limits.whole
        if work.length > whole or self.pending[0].length > whole:
            return True  # what moves in parts is under way alone
        if self.reads:
            return work.fence or (work.returns_data and self.reads >= self.limits.reads)
        return False

    def _room(self, work: SendWork) -> int:
        """Count the packets that may go out now; what goes out again does so by itself."""
        limits, room = self.limits, self.limits.window - self._given
        if limits.reliable:
            missing = (self.due - self.oldest) & PSN_MASK
            room = 0 if missing and work.length > limits.whole else limits.window - missing
        elif room <= 0:
            self.pause()
        again = (self.fresh - self.due) & PSN_MASK
        return min(room, again) if again else room

    def _give(self, work: SendWork, room: int) -> None:
        limits, index = self.limits, (self.due - work.psn) & PSN_MASK
        packets = work.packets - index
        if limits.packets:
            if work.operation != READ:
                packets = min(packets, limits.part, room)
        elif work.length > limits.whole:
            packets = min(packets, limits.part)
        self.index, self.packets = index, packets
        self.due = (self.due + packets) & PSN_MASK
        self._given += packets if limits.packets else 1
        if index + packets == work.packets:
            self._cursor += 1
        self.first = (self.due - self.fresh) & PSN_MASK < HALF and self.due != self.fresh
        if self.first:
            self.fresh = self.due

    def pause(self) -> None:
        """Go on in a later turn."""
        self.state, self.delay = Sending.LATER, 0.0
        self._watch = Watch.STALE

    def pause_again(self) -> None:
        """Go on in a later turn with what goes out again."""
        if self.state is Sending.OPEN and self.due != self.fresh:
            self.pause()

    def carried_out(self) -> None:
        """Complete the local operation that was given out."""
        self.done.append(self.pending.popleft())

    def break_off(self, work: SendWork, status: CompletionStatus) -> None:
        """Fail a request, whose unit that was given out cannot be sent, when its turn comes."""
        work.status = status
        self._take_back(work)

    def _take_back(self, work: SendWork) -> None:
        """Let the unit that was given out be the next one again."""
        if self.packets:
            self.due = (self.due - self.packets) & PSN_MASK
            if self.first:
                self.fresh = self.due
            if self.index + self.packets == work.packets:
                self._cursor -= 1

    # -- absent pages ---------------------------------------------------------------------------

    def suspend(self, work: SendWork) -> None:
        """Send nothing until `resume`: the unit that was given out lies in absent pages."""
        self._take_back(work)
        self._wait()

    def suspend_answer(self) -> None:
        """Ask for the answer that has come once more after `resume`: it goes to absent pages."""
        self._go_back()
        self._wait()

    def _wait(self) -> None:
        self.state = Sending.ABSENT
        if self._watch is Watch.RUNS:
            self._watch = Watch.STALE

    def resume(self) -> None:
        """Go on after `suspend`, unless there is another reason to wait."""
        if self.state is Sending.ABSENT:
            self.state = Sending.OPEN

    # -- time -----------------------------------------------------------------------------------

    def watch(self) -> float:
        """Return the seconds for which the timer has to run from now on, or `KEEP`, or `STOP`."""
        seconds = 0.0
        if self.state is Sending.OPEN:
            if self.due != self.oldest and self.limits.reliable:
                limits = self.limits
                seconds = ack_timeout_us(limits.timeout) * limits.time_factor / 1e6
            if not seconds:
                if self._watch is Watch.STOPPED:
                    return KEEP
                self._watch = Watch.STOPPED
                return STOP
        if self._watch is Watch.RUNS:
            return KEEP
        if self.state is Sending.ENDED or self.state is Sending.ABSENT:
            self._watch = Watch.STOPPED
            return STOP
        self._watch = Watch.RUNS
        if self.state is Sending.OPEN:
            return max(seconds, self.limits.least)
        return self.delay

    def unwatch(self) -> None:
        """Take note that the timer does not run while units wait for a rate."""
        self._watch = Watch.STOPPED

    def expired(self) -> None:
        """Go on after the timer has run out: an answer is missing, or a receiver may be ready."""
        self._watch = Watch.STOPPED
        self._given = 0
        if self.state is Sending.NOT_READY:
            self.state = Sending.OPEN
            self._go_back()
        elif self.state is Sending.LATER:
            self.state = Sending.OPEN
        elif self.state is Sending.OPEN and self.pending:
            self._resumed = -1
            self._again()

    # -- answers --------------------------------------------------------------------------------

    def expects(self, psn: int) -> bool:
        """Return True if an answer for this PSN is under way."""
        ahead = (psn - self.oldest) & PSN_MASK
        return self.state is not Sending.ENDED and ahead < (self.fresh - self.oldest) & PSN_MASK

    def receive(self, psn: int, packets: int, syndrome: int, *, brings: bool) -> SendWork | None:
        """Take an answer to `packets` packets from `psn` on, which `expects` a PSN.

        If it `brings` data, the request that waits for them is returned: the owner stores them and
        calls `stored`, or `fail`.
        """
        if not syndrome and not brings:
            self._acknowledge((psn + packets) & PSN_MASK)
            return None
        if not self._acknowledge(psn):
            return None
        if syndrome:
            self._refused(syndrome)
            return None
        head = self.pending[0]
        if not head.returns_data:
            if self.limits.packets:
                self.fail(CompletionStatus.BAD_RESP_ERR)
            else:
                self._acknowledge((psn + packets) & PSN_MASK)
            return None
        if psn != self.oldest:
            self._again()  # the data before these were lost
            return None
        return head

    def stored(self, packets: int) -> None:
        """Go on behind the data that an answer of a read or an atomic has brought."""
        start, head = self.oldest, self.pending[0]
        self.oldest = (start + packets) & PSN_MASK
        if self.oldest == (head.psn + head.packets) & PSN_MASK:
            self._done(0)
        self._progress(start)

    def _acknowledge(self, psn: int) -> bool:
        """Acknowledge everything before a PSN; False if the answer to a read was lost before it."""
        start = self.oldest
        complete = True
        while self._begun and psn != self.oldest:
            work = self.pending[0]
            if work.returns_data:
                complete = (psn - work.psn) & PSN_MASK < work.packets
                break
            end = (work.psn + work.packets) & PSN_MASK
            if (psn - end) & PSN_MASK >= HALF:
                self.oldest = psn
                break
            self.oldest = end
            self._done(0)
        self._progress(start)
        if not complete:
            self._again()
        return complete

    def _progress(self, start: int) -> None:
        """Reset timer and counters if anything from `start` on was acknowledged."""
        if self.oldest == start:
            return
        self.retries = self.rnr_retries = 0
        self.offered = 0.0
        self._resumed = -1
        if (self.due - self.oldest) & PSN_MASK >= HALF:
            self._rewind()
        if self.state is Sending.NOT_READY or not self.pending:
            self.state = Sending.OPEN
        if self.state is not Sending.OPEN:
            return
        if self._watch is Watch.RUNS:
            self._watch = Watch.STALE
        if self.pending and self.pending[0].length > self.limits.whole and self._begun:
            self.pause()  # the next part

    def _done(self, status: int) -> None:
        work = self.pending.popleft()
        work.status = status
        if self._cursor:
            self._cursor -= 1
        if self._begun:
            self._begun -= 1
            if work.returns_data:
                self.reads -= 1
        self.done.append(work)

    def _refused(self, syndrome: int) -> None:
        kind = syndrome & KIND
        if syndrome == Syndrome.NAK_PSN:
            self._again()
        elif kind == Syndrome.RNR_NAK:
            self._not_ready(syndrome & 0x1F)
        elif kind:
            self.fail(NAK_STATUS.get(syndrome, CompletionStatus.BAD_RESP_ERR))

    # -- trouble --------------------------------------------------------------------------------

    def _rewind(self) -> None:
        self.due, self._cursor = self.oldest, 0

    def _go_back(self) -> None:
        self._rewind()
        self._resumed = self.oldest

    def _again(self) -> None:
        """Go back to the oldest packet without an answer, once for each loss that is noticed."""
        packets = self.limits.packets
        if self.state is Sending.ABSENT:
            self._go_back()
            return
        if self.state is not Sending.OPEN and not (packets and self.state is Sending.LATER):
            return
        if self._resumed == self.oldest and packets:
            return
        if self.retries >= self.limits.retries:
            self.fail(CompletionStatus.TRANSPORT_RETRY_EXC_ERR)
            return
        self.retries += 1
        self.troubles += 1
        self._go_back()
        self.pause()  # not from here: the answer that brought us may be one of many in a row

    def _not_ready(self, code: int) -> None:
        """Wait after an RNR NAK with timer code `code`, then send all again."""
        if self.state is Sending.NOT_READY:
            return
        holds = self.limits.held and not code
        if not holds or not self.offered:
            if self.rnr_retries >= self.limits.rnr_retries != FOREVER:
                self.fail(CompletionStatus.RNR_RETRY_EXC_ERR)
                return
            self.rnr_retries += 1
            self.troubles += 1
        self.state = Sending.NOT_READY
        self.delay = HOLD_SECONDS if holds else RNR_TIMER_US[code] / 1e6
        if self.limits.packets:
            self.delay = max(self.delay, self.limits.least)
        self._watch = Watch.STALE

    def hold(self, seconds: float, code: int) -> None:
        """Wait longer for a receiver that is not ready; offers add up to the time of code 0."""
        self.delay = max(self.delay, seconds)
        if self.limits.held and not code:
            self.offered += self.delay
            if self.offered >= RNR_TIMER_US[0] / 1e6:
                self.offered = 0.0

    def fail(self, status: CompletionStatus) -> None:
        """Complete the oldest request in error and flush the rest."""
        self.state = Sending.ENDED
        self.failure = status
        if self._watch is Watch.RUNS:
            self._watch = Watch.STALE
        self._done(status)
        while self.pending:
            self._done(CompletionStatus.WR_FLUSH_ERR)
