"""The responder of a connection, without I/O (InfiniBand vol. 1, 9.7.4, 9.7.5 and 9.8.3).

Units of requests come in: packets or, on a network of messages, messages and parts of them. Data
are placed unit by unit. Answers leave in the order of the requests. On a network of packets those
of a read leave in bursts that the owner asks for, so that no more than a burst of packets is ever
made at once. A request that comes meanwhile waits until the read is answered: it could take the
read's key or memory away (Linux `drivers/infiniband/sw/rxe/rxe_resp.c: get_req` does the same). It
waits, too, while many answers are due.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from bluebridge.device import pieces
from bluebridge.device.fabric.messages import Payload, Request
from bluebridge.device.layout.net.roce import ATOMICS, PSN_MASK, Op, Syndrome
from bluebridge.device.rdma.connected.requester import HALF
from bluebridge.device.rdma.vocabulary import AsyncEvent

MASK: Final = (1 << 64) - 1
MOST_ANSWERS: Final = 64
"""Answers that are due from which on requests wait."""
PACKET_COST: Final = 512
"""Bytes that a packet which waits takes besides its payload."""

_SENDS: Final = frozenset((Op.SEND, Op.SEND_IMM, Op.SEND_INV))
_WRITES: Final = frozenset((Op.WRITE, Op.WRITE_IMM))


class Nak(Exception):
    """A request that is refused: NAK syndrome for the peer, asynchronous event for our software."""

    def __init__(self, syndrome: Syndrome, event: AsyncEvent | None, reason: str) -> None:
        super().__init__(reason)
        self.syndrome = syndrome
        self.event = event


class NotPresent(Exception):
    """A unit needs pages that are absent, and shall come again when they are there."""


def invalid(reason: str) -> Nak:
    """Return the refusal of a request that makes no sense or is not permitted."""
    return Nak(Syndrome.NAK_INVALID_REQUEST, AsyncEvent.WQ_INVALID_REQUEST, reason)


def operate(op: Op, value: int, operands: tuple[int, int, int, int]) -> int:
    """Return the number that an atomic leaves in memory that held `value`.

    `operands` are swap or add, compare, swap mask or field boundaries, compare mask. A set bit
    in the boundaries of a masked add is the top bit of a field: no carry leaves it (Linux
    `include/rdma/ib_verbs.h: IB_WR_MASKED_ATOMIC_FETCH_AND_ADD`).
    """
    first, compare, mask, compare_mask = operands
    if op is Op.COMPARE_SWAP:
        return first if value == compare else value
    if op is Op.FETCH_ADD:
        return (value + first) & MASK
    if op is Op.MASKED_COMPARE_SWAP:
        if (value ^ compare) & compare_mask:
            return value
        return (value & ~mask & MASK) | (first & mask)
    if op is Op.MASKED_FETCH_ADD:
        below = ~mask & MASK
        return (((value & below) + (first & below)) ^ ((value ^ first) & mask)) & MASK
    raise ValueError(f"{op!r} is no atomic")


class RemoteSide(Protocol):
    """Memory and receives of the responder's side.

    All may raise `Nak`; those that move bytes of a reliable connection `NotPresent`, too.
    """

    def choose_srq(self, request: Request) -> None:
        """Receive from the SRQ that a request of XRC names; any other has nothing to do."""

    def check_end(self, request: Request, end: int) -> None:
        """Check that a message may reach up to the remote address `end`."""

    def write(self, request: Request, *, notifies: bool, left: int) -> bool:
        """Write a unit; one that `notifies` takes a receive, and False means there is none.

        `left` are the bytes of its message from there on.
        """

    def read(self, request: Request, offset: int, length: int) -> Payload:
        """Return bytes that a read asks for."""

    def check_present(self, request: Request) -> None:
        """Raise `NotPresent` if pages of a read are absent that is answered bit by bit."""

    def operate(self, request: Request) -> int:
        """Carry out an atomic; returns what was in memory before."""

    def repeat_refused(self) -> None:
        """Take note of a read that came again and may not be answered any more."""

    def carried_out(self, op: Op) -> None:
        """Count a write, a read or an atomic that was carried out whole, and not before."""

    def take_receive(self) -> bool:
        """Take the next receive, for the message that begins; False if there is none."""

    def room(self) -> int:
        """Return how many bytes fit into the receive that was taken; 0 if it is gone."""

    def place(self, request: Request, offset: int, *, ends: bool) -> None:
        """Store a unit of a message, from byte `offset` on, in the receive that was taken."""

    def complete(self, request: Request, length: int) -> None:
        """Complete the receive that was taken; `request` is the last unit of the message."""


class Answer:
    """An answer that is due, for `packets` packets from `psn` on, of which some are `sent`.

    `request` is what was carried out, None for a refusal. A read has its bytes in `data`, or is
    read packet by packet: `lazy`. `repeats`: it was given before. `given` are those of the packets
    sent that were given out last.
    """

    def __init__(self, psn: int, syndrome: int, msn: int, request: Request | None = None) -> None:
        self.psn = psn
        self.syndrome = syndrome
        self.msn = msn
        self.request = request
        self.packets = 1
        self.original: int | None = None
        self.data: Payload = ()
        self.reads = self.lazy = self.repeats = False
        self.sent = self.given = 0


class _Kept:
    """A read or an atomic that may be asked for again; an atomic has what it found."""

    def __init__(self, psn: int, packets: int, original: int | None) -> None:
        self.psn = psn
        self.packets = packets
        self.original = original


class Responder:
    """The answers of one connection; `mtu` is that of packets, 0 on a network of messages.

    `expected` is the PSN that comes next; `depth` how many reads and atomics are kept for
    duplicates; `rnr_code` the time a sender is to wait when no receive is there. One that is not
    `reliable` answers nothing: a message of which a unit is missing or refused is dropped.
    `refusal` is the last one: syndrome, event for software, reason. `held` is how many bytes the
    requests take that wait for answers to leave, `repeated` how many requests came again.
    `stalled`: pages are absent of the read that is being answered, until the owner resets that.
    """

    def __init__(
        self,
        mtu: int,
        psn: int,
        side: RemoteSide,
        *,
        depth: int = 16,
        rnr_code: int = 12,
        reliable: bool = True,
    ) -> None:
        self._mtu = mtu
        self._side = side
        self.depth = depth
        self.rnr_code = rnr_code
        self._reliable = reliable
        self.expected = psn
        self.msn = 0
        self.failed = False
        self.refusal: tuple[Syndrome, AsyncEvent | None, str] | None = None
        self._asked = False  # for the packet that is missing
        self._op: Op | None = None  # of the message that is under way
        self._offset = self._va = self._rkey = self._left = 0
        self._kept: deque[_Kept] = deque()
        self._answers: deque[Answer] = deque()
        self._waiting: deque[Request] = deque()
        self.held = self.repeated = 0
        self.stalled = False

    @property
    def busy(self) -> bool:
        """True while answers are due."""
        return bool(self._answers or self._waiting)

    @property
    def reads(self) -> bool:
        """True while a read is being answered."""
        return bool(self._answers) and self._answers[-1].lazy

    @property
    def full(self) -> bool:
        """True while what comes waits."""
        answers = self._answers
        if not answers:
            return len(self._waiting) > 0
        return answers[-1].lazy or len(self._waiting) > 0 or len(answers) >= MOST_ANSWERS

    def has_room(self, size: int) -> bool:
        """Return True if so many bytes may follow in the middle of the message under way."""
        if self._op is Op.WRITE:
            return size < self._left
        return self._op is Op.SEND and self._offset + size <= self._side.room()

    def receive(self, request: Request) -> None:
        """Take a unit, at once or when answers have left; answers are due after it."""
        if self.failed:
            return
        if (self._answers and self.full) or self._waiting:
            self._waiting.append(request)
            self.held += cost(request)
        elif self._reliable:
            self._take(request)
        else:
            self._take_unreliable(request)

    def forget(self) -> None:
        """Drop the requests that wait."""
        self._waiting.clear()
        self.held = 0

    def _take(self, request: Request) -> None:
        distance = (request.psn - self.expected) & PSN_MASK
        if distance >= HALF:
            self._repeat(request)
        elif distance:
            self._ask()
        else:
            self._asked = False
            try:
                self._execute(request)
            except NotPresent:
                self._not_ready(request.psn)
            except Nak as nak:
                self._refuse(request.psn, nak)

    def _take_unreliable(self, request: Request) -> None:
        """Carry out a unit of UC; one that does not continue its message begins another or none.

        A receive that a broken message had taken is used for the next one.
        """
        part = request.part
        begins = part is None or not part.offset
        if begins or request.psn != self.expected:
            self._op = None
        if begins or self._op is not None:  # else the rest of a message that broke off
            try:
                self._execute(request)
            except Nak as nak:
                self._op = None
                self.refusal = nak.syndrome, nak.event, str(nak)
        self.expected = (request.psn + request.packets) & PSN_MASK
        self._answers.clear()

    # -- answers ------------------------------------------------------------------------------

    def next_answer(self, most: int = 1) -> Answer | None:
        """Give out the oldest answer that is due; None while requests that waited come first.

        Of a read that is read packet by packet these are the next packets, up to `most`: the owner
        reads them, and calls `unreadable` if it may not.
        """
        if not self._answers:
            return None
        answer = self._answers[0]
        answer.given = min(most, answer.packets - answer.sent) if answer.lazy else 1
        answer.sent += answer.given
        if not answer.lazy or answer.sent == answer.packets:
            self._answers.popleft()
        return answer

    def unreadable(self, answer: Answer, nak: Nak) -> None:
        """Refuse the rest of a read, or drop it if it came again.

        The peer may have what it asked for then, and have let its key go.
        """
        if self._answers and self._answers[0] is answer:
            self._answers.popleft()
        if not answer.repeats:
            self._refuse((answer.psn + answer.sent - answer.given) & PSN_MASK, nak)

    def take_back(self, answer: Answer) -> None:
        """Let packets of a read that were given out be the next ones again: pages are absent."""
        self.stalled = True
        answer.sent -= answer.given
        if not self._answers or self._answers[0] is not answer:
            self._answers.appendleft(answer)

    def proceed(self, most: int) -> int:
        """Carry out up to `most` requests that waited, up to the next read; return how many."""
        count = 0
        while count < most and self._waiting and not self.reads and not self.failed:
            request = self._waiting.popleft()
            self.held -= cost(request)
            count += 1
            self._take(request)
        return count

    # -- requests in order --------------------------------------------------------------------

    def _execute(self, request: Request) -> None:
        op, part = request.op, request.part
        if request.srqn is not None:
            self._side.choose_srq(request)
        begins = part is None or not part.offset
        ends = part is None or part.last
        if op >= Op.READ and request.ahead >= self.depth:
            raise invalid(f"more than {self.depth} reads and atomics at once")
        if begins is (self._op is not None):
            raise invalid("a unit out of its message")
        if op in _SENDS:
            self._take_send(request, begins, ends)
        elif op in _WRITES:
            self._take_write(request, begins, ends)
        elif op is Op.READ:
            self._start_read(request, begins, ends)
        elif op in ATOMICS:
            original = self._side.operate(request)
            self._accept(request, None, True)
            self._keep(request, original)
            self._say(request.psn, Syndrome.ACK, request, original)
        else:
            raise invalid(f"operation {op}")

    def _start_read(self, request: Request, begins: bool, ends: bool) -> None:
        part = request.part
        if begins and not ends and part is not None:
            self._side.check_end(request, request.remote_address + part.total)
        if self._mtu:
            self._side.check_present(request)
        answer = self._answer_to(request)
        self._keep(request, None)
        self._accept(request, Op.READ, ends)
        answer.msn = self.msn
        self._answers.append(answer)

    def _answer_to(self, request: Request) -> Answer:
        """Return the answer to a read, with its bytes unless they are read packet by packet."""
        answer = Answer(request.psn, Syndrome.ACK, self.msn, request)
        answer.reads, answer.packets = True, request.packets
        answer.lazy = self._mtu > 0
        if not answer.lazy:
            answer.data = self._side.read(request, 0, request.length)
        return answer

    def _keep(self, request: Request, original: int | None) -> None:
        self._kept.append(_Kept(request.psn, request.packets, original))
        if len(self._kept) > self.depth:
            self._kept.popleft()

    def _take_send(self, request: Request, begins: bool, ends: bool) -> None:
        if self._mtu:
            self._check_length(request, begins, ends)
        if begins:
            if not self._side.take_receive():
                self._not_ready(request.psn)
                return
            self._offset = 0
        elif self._op is not Op.SEND:
            raise invalid("a SEND in the middle of a WRITE")
        self._side.place(request, self._offset, ends=ends)
        self._offset += request.length
        if ends:
            self._side.complete(request, self._offset)
        self._accept(request, Op.SEND, ends)

    def _take_write(self, request: Request, begins: bool, ends: bool) -> None:
        if self._mtu:
            self._check_length(request, begins, ends)
        size, part = request.length, request.part
        if begins:
            self._va, self._rkey, self._offset = request.remote_address, request.rkey, 0
            self._left = size if part is None else part.total
            if not ends:
                self._side.check_end(request, self._va + self._left)
        elif self._op is not Op.WRITE:
            raise invalid("a WRITE in the middle of a SEND")
        else:
            request.remote_address, request.rkey = self._va + self._offset, self._rkey
        if size > self._left or ends != (size == self._left):
            raise invalid("more or fewer bytes than the WRITE said")
        notifies = ends and request.op is Op.WRITE_IMM
        if not self._side.write(request, notifies=notifies, left=self._left):
            self._not_ready(request.psn)
            return
        self._offset += size
        self._left -= size
        if notifies:
            self._side.complete(request, self._offset)
        self._accept(request, Op.WRITE, ends)

    def _check_length(self, request: Request, begins: bool, ends: bool) -> None:
        size, most = request.length, self._mtu * request.packets
        if size > most or (size != most if not ends else not (begins or size)):
            raise invalid("a packet of a wrong length")

    def _accept(self, request: Request, op: Op | None, ends: bool) -> None:
        """Count a unit that was carried out; a SEND or a WRITE is acknowledged."""
        self._op = None if ends else op
        self.expected = (self.expected + request.packets) & PSN_MASK
        self.msn = (self.msn + ends) & PSN_MASK
        if ends and op is not Op.SEND:
            self._side.carried_out(request.op)
        if request.ack and (op is Op.SEND or op is Op.WRITE):
            last = (self.expected - 1) & PSN_MASK
            self._acknowledge(last if self._mtu else request.psn, request)

    # -- requests out of order ----------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the packet that is missing, once until it comes."""
        if not self._asked:
            self._asked = True
            self._say(self.expected, Syndrome.NAK_PSN)

    def _repeat(self, request: Request) -> None:
        """Answer a duplicate; a SEND or a WRITE is acknowledged and not carried out again (C9-105).

        One that was kept no longer, or that cannot be answered any more, is dropped: it is an error
        of class D (`rxe_resp.c: duplicate_request`).
        """
        if self._mtu:
            self.repeated += 1
        try:
            self._side.choose_srq(request)
        except Nak:
            return
        if not self._mtu:
            self.repeated += 1
        if request.op < Op.READ:
            self._acknowledge((self.expected - 1) & PSN_MASK if self._mtu else request.psn, request)
            return
        for kept in reversed(self._kept):  # an older one with this PSN is of another lap
            into = (request.psn - kept.psn) & PSN_MASK
            if into + request.packets > kept.packets:
                continue
            if kept.original is not None and request.op in ATOMICS:
                self._say(kept.psn, Syndrome.ACK, request, kept.original)
            elif kept.original is None and request.op is Op.READ:
                self._read_again(request)
            return

    def _read_again(self, request: Request) -> None:
        try:
            answer = self._answer_to(request)
        except NotPresent:
            self._say(request.psn, Syndrome.RNR_NAK | self.rnr_code)
            return
        except Nak:
            self._side.repeat_refused()
            return
        answer.repeats = True
        self._answers.append(answer)

    # -- answers that are made ------------------------------------------------------------------

    def _not_ready(self, psn: int) -> None:
        self._asked = True  # what follows is dropped until this packet comes again
        self._say(psn, Syndrome.RNR_NAK | self.rnr_code)

    def _refuse(self, psn: int, nak: Nak) -> None:
        self.failed = True
        self.forget()
        self.refusal = nak.syndrome, nak.event, str(nak)
        self._say(psn, nak.syndrome)

    def _acknowledge(self, psn: int, request: Request) -> None:
        """Acknowledge up to a PSN, together with what is still to be acknowledged before it."""
        last = self._answers[-1] if self._answers else None
        if last is None or last.reads or last.syndrome or last.original is not None:
            self._say(psn, Syndrome.ACK, request)
        else:
            last.psn, last.msn, last.request = psn, self.msn, request

    def _say(
        self, psn: int, syndrome: int, request: Request | None = None, original: int | None = None
    ) -> None:
        answer = Answer(psn, syndrome, self.msn, request)
        answer.original = original
        self._answers.append(answer)


def cost(request: Request) -> int:
    """Return how many bytes a request takes while it waits."""
    return pieces.size(request.payload) + PACKET_COST
