"""The responder of a connection that gets packets (InfiniBand vol. 1, 9.7.4, 9.7.5 and 9.8.3).

Data are placed packet by packet. Answers leave in the order of the requests, those of a read in
bursts that the owner asks for, so that no more than a burst of packets is ever made at once. A
request that comes meanwhile waits until the read is answered: it could take the read's key or
memory away (Linux `drivers/infiniband/sw/rxe/rxe_resp.c: get_req` does the same). It waits, too,
while many answers are due.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode, Op, Syndrome
from bluebridge.device.packets.segmentation import read_response_of
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.requester import HALF, packets_of
from bluebridge.device.rdma.connected.responder import Nak, invalid
from bluebridge.device.rdma.vocabulary import AsyncEvent

_SEND: Final = range(BthOpcode.RC_SEND_FIRST, BthOpcode.RC_SEND_ONLY_IMM + 1)
_INVALIDATES: Final = (BthOpcode.RC_SEND_LAST_INV, BthOpcode.RC_SEND_ONLY_INV)
_IMMEDIATE_WRITES: Final = (BthOpcode.RC_WRITE_LAST_IMM, BthOpcode.RC_WRITE_ONLY_IMM)
_FIRST: Final = (BthOpcode.RC_SEND_FIRST, BthOpcode.RC_WRITE_FIRST)
_MIDDLE: Final = (BthOpcode.RC_SEND_MIDDLE, BthOpcode.RC_WRITE_MIDDLE)
_LAST: Final = (
    BthOpcode.RC_SEND_LAST,
    BthOpcode.RC_SEND_LAST_IMM,
    BthOpcode.RC_SEND_LAST_INV,
    BthOpcode.RC_WRITE_LAST,
    BthOpcode.RC_WRITE_LAST_IMM,
)
MOST_ANSWERS: Final = 64
"""Answers that are due from which on requests wait."""
PACKET_COST: Final = 512
"""Bytes that a packet which waits takes besides its payload."""

_ATOMIC: Final = {
    int(BthOpcode.RC_COMPARE_SWAP): Op.COMPARE_SWAP,
    int(BthOpcode.RC_FETCH_ADD): Op.FETCH_ADD,
}


class RemoteSide(Protocol):
    """Memory and receives of the responder's side; all may raise `Nak`."""

    def choose_srq(self, packet: TransportPacket) -> None:
        """Receive from the SRQ that a packet of XRC names; any other service has nothing to do."""

    def check_write(self, va: int, rkey: int, length: int) -> None:
        """Check that all bytes of a message may be written."""

    def write(self, va: int, rkey: int, data: bytes | memoryview) -> None:
        """Write the bytes of one packet."""

    def read(self, va: int, rkey: int, length: int) -> bytes:
        """Return bytes that one packet of an answer carries."""

    def operate(self, op: Op, packet: TransportPacket) -> int:
        """Carry out an atomic; returns what was in memory before."""

    def take_receive(self) -> bool:
        """Take the next receive, for the message that begins; False if there is none."""

    def place(self, offset: int, data: bytes | memoryview) -> None:
        """Store bytes of a message in the receive that was taken."""

    def complete(self, op: Op, length: int, packet: TransportPacket) -> None:
        """Complete the receive that was taken; `packet` is the last of the message."""


@dataclass(slots=True)
class _Answer:
    """An answer that is due; a read has a `request`, and `packets` of which some are `sent`.

    `repeats`: it was given before.
    """

    packet: TransportPacket
    request: TransportPacket | None = None
    packets: int = 1
    repeats: bool = False
    sent: int = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    """A read or an atomic that may be asked for again; an atomic has its answer."""

    psn: int
    packets: int
    answer: TransportPacket | None


class PacketResponder:
    """The answers of one connection.

    `expected` is the PSN that comes next; `depth` how many reads and atomics are kept for
    duplicates; `rnr_code` the time a sender is to wait when no receive is there. One that is not
    `reliable` answers nothing: a message of which a packet is missing or refused is dropped.
    `refusal` is the last one: syndrome, event for software, reason. `held` is how many bytes the
    requests take that wait for answers to leave, `repeated` how many requests came again.
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
        self._depth = depth
        self._rnr_code = rnr_code
        self._reliable = reliable
        self.expected = psn
        self.msn = 0
        self.failed = False
        self.refusal: tuple[Syndrome, AsyncEvent | None, str] | None = None
        self._asked = False  # for the packet that is missing
        self._op: Op | None = None  # of the message that is under way
        self._offset = self._va = self._rkey = self._left = 0
        self._kept: deque[_Kept] = deque(maxlen=depth)
        self._answers: deque[_Answer] = deque()
        self._waiting: deque[TransportPacket] = deque()
        self.held = self.repeated = 0

    @property
    def busy(self) -> bool:
        """True while answers are due."""
        return bool(self._answers or self._waiting)

    @property
    def reads(self) -> bool:
        """True while a read is being answered."""
        return bool(self._answers) and self._answers[-1].request is not None

    @property
    def full(self) -> bool:
        """True while what comes waits."""
        return self.reads or bool(self._waiting) or len(self._answers) >= MOST_ANSWERS

    def receive(self, packet: TransportPacket) -> None:
        """Take a request packet, at once or when answers have left; answers are due after it."""
        if self.failed:
            return
        if self.full:
            self._waiting.append(packet)
            self.held += cost(packet)
        elif self._reliable:
            self._take(packet)
        else:
            self._take_unreliable(packet)

    def forget(self) -> None:
        """Drop the requests that wait."""
        self._waiting.clear()
        self.held = 0

    def _take(self, packet: TransportPacket) -> None:
        distance = packet.psn - self.expected & PSN_MASK
        if distance >= HALF:
            self.repeated += 1
            self._repeat(packet)
        elif distance:
            self._ask()
        else:
            self._asked = False
            try:
                self._execute(packet)
            except Nak as nak:
                self._refuse(packet.psn, nak)

    def _take_unreliable(self, packet: TransportPacket) -> None:
        """Carry out a packet of UC; one that does not continue its message begins another or none.

        A receive that a broken message had taken is used for the next one.
        """
        begins = packet.opcode not in _MIDDLE and packet.opcode not in _LAST
        if begins or packet.psn != self.expected:
            self._op = None
        self.expected = packet.psn
        if begins or self._op is not None:  # else the rest of a message that broke off
            try:
                self._execute(packet)
            except Nak as nak:
                self._op = None
                self.refusal = nak.syndrome, nak.event, str(nak)
        self.expected = packet.psn + 1 & PSN_MASK
        self._answers.clear()

    def answers(self, most: int) -> list[TransportPacket]:
        """Return packets of the answers that are due, in order.

        Requests that waited are carried out where their turn comes. These and the packets are
        `most` together, if there are as many.
        """
        packets: list[TransportPacket] = []
        left = most
        while left > 0 and self.busy:
            if self._answers:
                self._answer(packets)
                left -= 1
            else:
                left -= self._proceed(left)
        return packets

    def _proceed(self, most: int) -> int:
        """Carry out up to `most` requests that waited, up to the next read; return how many."""
        count = 0
        while count < most and self._waiting and not self.reads and not self.failed:
            packet = self._waiting.popleft()
            self.held -= cost(packet)
            count += 1
            self._take(packet)
        return count

    # -- requests in order --------------------------------------------------------------------

    def _execute(self, packet: TransportPacket) -> None:
        self._side.choose_srq(packet)
        code = packet.opcode
        if (code in _MIDDLE or code in _LAST) != (self._op is not None):
            raise invalid("a packet out of its message")
        if code == BthOpcode.RC_READ_REQUEST:
            self._start_read(packet)
        elif code in _ATOMIC:
            self._carry_out_atomic(packet)
        elif code in _SEND or code in _INVALIDATES:
            self._take_send(packet)
        else:
            self._take_write(packet)

    def _start_read(self, packet: TransportPacket) -> None:
        packets = packets_of(packet.length, self._mtu)
        self._keep(_Kept(packet.psn, packets, None))
        self._accept(packets, ends=True)
        self._answers.append(_Answer(packet, packet, packets))

    def _carry_out_atomic(self, packet: TransportPacket) -> None:
        original = self._side.operate(_ATOMIC[packet.opcode], packet)
        self._accept(1, ends=True)
        answer = TransportPacket(
            BthOpcode.RC_ATOMIC_ACK, packet.psn, msn=self.msn, original=original
        )
        self._keep(_Kept(packet.psn, 1, answer))
        self._answers.append(_Answer(answer))

    def _keep(self, kept: _Kept) -> None:
        if not self._depth:
            raise invalid("reads and atomics are not permitted")
        self._kept.append(kept)

    def _take_send(self, packet: TransportPacket) -> None:
        self._check_length(packet)
        begins = self._op is None
        if begins:
            if not self._side.take_receive():
                self._not_ready(packet.psn)
                return
            self._offset = 0
        elif self._op is not Op.SEND:
            raise invalid("a SEND in the middle of a WRITE")
        self._side.place(self._offset, packet.payload)
        self._offset += len(packet.payload)
        ends = packet.opcode not in _FIRST and packet.opcode not in _MIDDLE
        self._op = None if ends else Op.SEND
        if ends:
            op = Op.SEND_INV if packet.opcode in _INVALIDATES else Op.SEND
            if packet.opcode in (BthOpcode.RC_SEND_LAST_IMM, BthOpcode.RC_SEND_ONLY_IMM):
                op = Op.SEND_IMM
            self._side.complete(op, self._offset, packet)
        self._accepted(packet, ends)

    def _take_write(self, packet: TransportPacket) -> None:
        self._check_length(packet)
        size = len(packet.payload)
        if self._op is None:
            self._side.check_write(packet.va, packet.rkey, packet.length)
            self._va, self._rkey, self._left = packet.va, packet.rkey, packet.length
            self._offset = 0
        elif self._op is not Op.WRITE:
            raise invalid("a WRITE in the middle of a SEND")
        ends = packet.opcode not in _FIRST and packet.opcode not in _MIDDLE
        if size > self._left or ends != (size == self._left):
            raise invalid("more or fewer bytes than the WRITE said")
        notifies = packet.opcode in _IMMEDIATE_WRITES
        if notifies and not self._side.take_receive():
            self._not_ready(packet.psn)
            return
        self._side.write(self._va + self._offset, self._rkey, packet.payload)
        self._offset += size
        self._left -= size
        self._op = None if ends else Op.WRITE
        if notifies:
            self._side.complete(Op.WRITE_IMM, self._offset, packet)
        self._accepted(packet, ends)

    def _check_length(self, packet: TransportPacket) -> None:
        size, code = len(packet.payload), packet.opcode
        whole = code in _FIRST or code in _MIDDLE
        if size > self._mtu or (whole and size != self._mtu) or (code in _LAST and not size):
            raise invalid("a packet of a wrong length")

    def _accepted(self, packet: TransportPacket, ends: bool) -> None:
        self._accept(1, ends=ends)
        if packet.ack:
            self._acknowledge(packet.psn)

    def _accept(self, packets: int, *, ends: bool) -> None:
        self.expected = self.expected + packets & PSN_MASK
        self.msn = self.msn + ends & PSN_MASK

    # -- requests out of order ----------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the packet that is missing, once until it comes."""
        if not self._asked:
            self._asked = True
            self._say(self.expected, Syndrome.NAK_PSN)

    def _repeat(self, packet: TransportPacket) -> None:
        """Answer a duplicate; a SEND or a WRITE is acknowledged and not carried out again (C9-105).

        One that was kept no longer, or that cannot be answered any more, is dropped: it is an error
        of class D (`rxe_resp.c: duplicate_request`).
        """
        if packet.opcode != BthOpcode.RC_READ_REQUEST and packet.opcode not in _ATOMIC:
            self._acknowledge(self.expected - 1 & PSN_MASK)
            return
        try:
            self._side.choose_srq(packet)
        except Nak:
            return
        packets = packets_of(packet.length, self._mtu)
        for kept in reversed(self._kept):  # an older one with this PSN is of another lap
            into = packet.psn - kept.psn & PSN_MASK
            if into + packets > kept.packets:
                continue
            if kept.answer is not None and packet.opcode in _ATOMIC:
                self._answers.append(_Answer(kept.answer))
            elif kept.answer is None and packet.opcode not in _ATOMIC:
                self._answers.append(_Answer(packet, packet, packets, repeats=True))
            return

    # -- answers ------------------------------------------------------------------------------

    def _not_ready(self, psn: int) -> None:
        self._asked = True  # what follows is dropped until this packet comes again
        self._say(psn, Syndrome.RNR_NAK | self._rnr_code)

    def _refuse(self, psn: int, nak: Nak) -> None:
        self.failed = True
        self.forget()
        self.refusal = nak.syndrome, nak.event, str(nak)
        self._say(psn, nak.syndrome)

    def _acknowledge(self, psn: int) -> None:
        """Acknowledge up to a PSN, together with what is still to be acknowledged before it."""
        last = self._answers[-1].packet if self._answers else None
        if last is not None and last.opcode == BthOpcode.RC_ACK and not last.syndrome:
            last.psn, last.msn = psn, self.msn
        else:
            self._say(psn, Syndrome.ACK)

    def _say(self, psn: int, syndrome: int) -> None:
        packet = TransportPacket(BthOpcode.RC_ACK, psn, syndrome=syndrome, msn=self.msn)
        self._answers.append(_Answer(packet))

    def _answer(self, packets: list[TransportPacket]) -> None:
        """Add the next packet of the oldest answer.

        The rest of a read that may not be answered any more is refused, or dropped if it came
        again: the peer may have what it asked for, and have let its key go.
        """
        answer = self._answers[0]
        if answer.request is None:
            self._answers.popleft()
            packets.append(answer.packet)
            return
        try:
            packets.append(self._data(answer, answer.request))
        except Nak as nak:
            self._answers.popleft()
            if not answer.repeats:
                self._refuse(answer.request.psn + answer.sent & PSN_MASK, nak)
            return
        answer.sent += 1
        if answer.sent == answer.packets:
            self._answers.popleft()

    def _data(self, answer: _Answer, request: TransportPacket) -> TransportPacket:
        """Return the next packet of a read's answer, with the bytes that memory holds now."""
        index = answer.sent
        offset = index * self._mtu
        size = min(self._mtu, request.length - offset)
        code = read_response_of(index, answer.packets)
        data = self._side.read(request.va + offset, request.rkey, size)
        return TransportPacket(code, request.psn + index & PSN_MASK, data, msn=self.msn)


def cost(packet: TransportPacket) -> int:
    """Return how many bytes a packet takes while it waits."""
    return len(packet.payload) + PACKET_COST
