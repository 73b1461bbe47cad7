"""The sender of requests: PSN after PSN, or back to one that was not acknowledged (go-back-N)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bluebridge.device.layout.net.roce import MTU_BYTES, PSN_MASK, UNRELIABLE_SERVICE, BthOpcode
from bluebridge.host_tools.analyzer.wire_check import rules
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Seen, Violation, broken, later

_KEPT: Final = 1 << 15  # The most packets of a flow that are remembered
_READS: Final = 256


class Cause(StrEnum):
    """Why a sender went back."""

    NAK = "sequence NAK"
    RNR = "RNR NAK"
    IMPLIED = "answer that was missing"
    TIMEOUT = "time-out"


@dataclass(slots=True)
class GoBack:
    """A sender went back to `psn` with packet `number` at `time`.

    `detection` is the time from the first packet behind the lost one to the NAK, `reaction` from
    there to the retransmission, or from the packet's last transmission without a NAK; both in ns.
    """

    number: int
    time: int
    qpn: int
    psn: int
    cause: Cause
    reaction: int
    detection: int | None = None


@dataclass(slots=True)
class Sent:
    """A request packet by its PSN, and the times of its last transmission and of the one after."""

    packet: tuple[int, ...]
    time: int
    followed: int = 0


@dataclass(slots=True)
class Read:
    """A READ request: its answers have `span` PSNs from `psn` on."""

    psn: int
    span: int
    length: int


@dataclass
class Requests:
    """The requests to one queue pair."""

    qpn: int
    pmtu: int = 0
    """The path MTU, 0 until a packet has shown it."""
    sent: dict[int, Sent] = field(default_factory=dict)
    reads: deque[Read] = field(default_factory=lambda: deque(maxlen=_READS))
    went_back: list[GoBack] = field(default_factory=list)
    next: int | None = None
    """The PSN of the next new packet; None before the first."""
    nak: tuple[int, int, Cause] | None = None
    """PSN, time and kind of the NAK to which the sender has not gone back yet."""
    answered: int = 0
    """The time of the last answer that has shown that a READ's answers go on, or are over."""
    _cursor: int = 0
    _message: int | None = None  # The opcode that began the message that is being sent
    _sure: bool = True  # False behind packets that were left out, until a message begins
    _bytes: int = 0
    _total: int = 0
    _open: Read | None = None
    """A READ whose span is not known, since no packet has shown the path MTU."""

    def take(self, seen: Seen) -> Iterator[Violation]:
        """Take the next request packet; yields what it breaks."""
        packet = seen.packet
        psn = packet.psn
        if self.next is None:
            self.next = self._cursor = psn
        self._close(psn)
        ahead = later(psn, self._cursor)
        if ahead > 0:
            yield broken(seen, Rule.SKIP, f"{ahead} after the one before")
            self._sure, self._message = False, None
        elif ahead < 0 and packet.service != UNRELIABLE_SERVICE:
            self._back(seen)
        if later(psn, self.next) >= 0:
            yield from self._begin(seen)
        elif (known := self.sent.get(psn)) is not None:
            if (contents := _contents(seen)) != known.packet:
                same = contents[:-1] == known.packet[:-1]
                yield broken(seen, Rule.REWRITTEN if same else Rule.RESENT)
            known.time, known.followed = seen.time, 0
        before = self.sent.get(psn - 1 & PSN_MASK)
        if before is not None and not before.followed:
            before.followed = seen.time
        span = self._span(seen)
        self._cursor = psn + span & PSN_MASK
        if later(self._cursor, self.next) > 0:
            self.next = self._cursor

    def begins_anew(self, seen: Seen) -> bool:
        """Return True if a packet is the first of another connection of the same queue pair.

        Its message begins there, and its PSN is far from any that this connection has used.
        """
        if self.next is None or seen.packet.opcode in rules.MIDDLES | rules.LASTS:
            return False
        return not -_KEPT < later(seen.packet.psn, self.next) < _KEPT

    def learn(self, mtu: int) -> None:
        """Take the path MTU, and with it how many answers a READ has."""
        self.pmtu = self.pmtu or mtu
        if self._open is not None:
            self._spans(self._open, -(-self._open.length // self.pmtu))

    def _close(self, psn: int) -> None:
        """Learn how many answers a READ has from the PSN behind it."""
        if self._open is not None:
            span = later(psn, self._open.psn)
            if any(-(-self._open.length // mtu) == span for mtu in MTU_BYTES.values()):
                self._spans(self._open, span)
            self._open = None

    def _spans(self, read: Read, span: int) -> None:
        read.span, self._open = span, None
        self.next = self._cursor = read.psn + span & PSN_MASK

    def _back(self, seen: Seen) -> None:
        psn, when, detection = seen.packet.psn, seen.time, None
        known = self.sent.get(psn)
        if self.nak is not None and self.nak[0] == psn:
            _, since, cause = self.nak
            if cause is Cause.NAK and known is not None and known.followed:
                detection = max(0, since - known.followed)
        elif self.answered and self.inside_read(psn) is not None:
            cause, since = Cause.IMPLIED, self.answered
        else:
            cause, since = Cause.TIMEOUT, known.time if known is not None else when
        found = GoBack(seen.number, when, self.qpn, psn, cause, when - since, detection)
        self.nak, self.answered = None, 0
        self.went_back.append(found)

    def _begin(self, seen: Seen) -> Iterator[Violation]:
        """Hold a new packet against the message that it is a part of."""
        packet, opcode = seen.packet, seen.packet.opcode
        if not self._in_order(opcode):
            yield broken(seen, Rule.ORDER)
            self._message = None
        if opcode in rules.FIRSTS:
            self._message, self._bytes, self._total = opcode, 0, packet.length
            self.learn(len(packet.payload))
        if not self._right_size(opcode, len(packet.payload)):
            yield broken(seen, Rule.SIZE, f"{len(packet.payload)} bytes")
        if opcode in rules.LASTS:
            self._message = None
        self.sent[packet.psn] = Sent(_contents(seen), seen.time)
        while len(self.sent) > _KEPT:
            del self.sent[next(iter(self.sent))]

    def _in_order(self, opcode: int) -> bool:
        """Return True if a packet goes on with the message that was begun, or begins one."""
        if opcode not in rules.MIDDLES and opcode not in rules.LASTS:
            self._sure = True
            return self._message is None
        if not self._sure:
            return True
        writes, begun = rules.WRITES, self._message
        return begun is not None and (opcode in writes) == (begun in writes)

    def _right_size(self, opcode: int, size: int) -> bool:
        self._bytes += size
        if opcode in rules.FIRSTS or opcode in rules.MIDDLES:
            return size == self.pmtu and size in MTU_BYTES.values()
        if self.pmtu and size > self.pmtu:
            return False
        if opcode not in rules.LASTS:
            return True
        wrong = opcode in rules.WRITES and self._bytes != self._total
        return size > 0 and not (self._sure and wrong)

    def _span(self, seen: Seen) -> int:
        packet = seen.packet
        if packet.opcode != BthOpcode.RC_READ_REQUEST:
            return 1
        span = -(-packet.length // self.pmtu) if self.pmtu else 0
        read = Read(packet.psn, max(1, span), packet.length)
        self.reads.append(read)
        if not self.pmtu and packet.length > min(MTU_BYTES.values()):
            self._open = read
        return read.span

    def inside_read(self, psn: int) -> Read | None:
        """Return the newest READ of which a PSN is an answer's, None if there is none."""
        found = (each for each in reversed(self.reads) if 0 <= later(psn, each.psn) < each.span)
        return next(found, None)

    def is_atomic(self, psn: int) -> bool:
        """Return True if an atomic operation was sent with this PSN."""
        known = self.sent.get(psn)
        return known is not None and known.packet[0] in rules.ATOMICS

    def was_sent(self, psn: int) -> bool:
        """Return True if a packet with this PSN was sent."""
        return self.next is not None and -_KEPT < later(psn, self.next) < 0

    def may_be_answered(self, psn: int) -> bool:
        """Return True if an answer with this PSN is one to a request that was sent."""
        return psn in self.sent or self.inside_read(psn) is not None


def _contents(seen: Seen) -> tuple[int, ...]:
    """Return what stays the same of a packet that is sent again; its bytes are last."""
    packet, payload = seen.packet, bytes(seen.packet.payload)
    return packet.opcode, packet.va, packet.length, packet.rkey, len(payload), hash(payload)
