"""The checker: packets of all connections in, violations and retransmissions out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.layout.net.roce import PSN_MASK, UNRELIABLE_SERVICE, BthOpcode, Syndrome
from bluebridge.host_tools.analyzer.wire_check import rules
from bluebridge.host_tools.analyzer.wire_check.requests import Cause, GoBack, Read, Requests
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Seen, Violation, broken, later

_FIRST: Final = (BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_READ_RESPONSE_ONLY)
_WITH_MSN: Final = (
    *_FIRST,
    BthOpcode.RC_READ_RESPONSE_LAST,
    BthOpcode.RC_ACK,
    BthOpcode.RC_ATOMIC_ACK,
)
_LAST: Final = (BthOpcode.RC_READ_RESPONSE_LAST, BthOpcode.RC_READ_RESPONSE_ONLY)


@dataclass
class Answers:
    """The answers to the requests to one queue pair."""

    requests: Requests
    _acknowledged: int | None = None
    _nak: int | None = None
    _rnr: int | None = None
    _msn: tuple[int, int] | None = None  # PSN and MSN of the farthest answer
    _cursor: int | None = None  # The PSN of the next answer to the READ that is being answered
    _read: Read | None = None

    def take(self, seen: Seen) -> Iterator[Violation]:
        """Take the next answer; yields what it breaks."""
        opcode = seen.packet.opcode
        if opcode in _WITH_MSN:
            psn, msn = seen.packet.psn, seen.packet.msn
            if self._msn is None or later(psn, self._msn[0]) >= 0:  # no kept answer of an atomic
                if self._msn is not None and later(msn, self._msn[1]) < 0:
                    yield broken(seen, Rule.MSN_BACK, f"{msn} after {self._msn[1]}")
                self._msn = psn, msn
        if opcode in rules.RESPONSES:
            yield from self._response(seen)
        elif opcode == BthOpcode.RC_ATOMIC_ACK:
            if not self.requests.is_atomic(seen.packet.psn):
                yield broken(seen, Rule.ATOMIC_UNASKED)
        else:
            yield from self._acknowledgement(seen)

    def _acknowledgement(self, seen: Seen) -> Iterator[Violation]:
        packet, requests = seen.packet, self.requests
        psn, kind = packet.psn, packet.syndrome >> 5
        if packet.syndrome == Syndrome.NAK_PSN:
            if not requests.was_sent(psn):
                yield broken(seen, Rule.NAK_NOTHING)
            if self._nak == psn:
                yield broken(seen, Rule.NAK_TWICE)
            if self._rnr == psn:
                yield broken(seen, Rule.NAK_AFTER_RNR)
            else:
                requests.nak = psn, seen.time, Cause.NAK
            self._nak = psn
        elif kind == Syndrome.RNR_NAK >> 5:
            known = requests.sent.get(psn)
            if known is not None and known.packet[0] not in rules.TAKES_RECEIVE:
                yield broken(seen, Rule.RNR_NO_RECEIVE)
            self._rnr = psn
            requests.nak = psn, seen.time, Cause.RNR
        else:
            if not requests.was_sent(psn):
                yield broken(seen, Rule.ACK_UNSENT)
            if not kind:
                yield from self._progress(seen)

    def _progress(self, seen: Seen) -> Iterator[Violation]:
        psn = seen.packet.psn
        if self._acknowledged is not None and later(psn, self._acknowledged) < 0:
            yield broken(seen, Rule.ACK_BACK)
        else:
            self._acknowledged = psn
        if self._rnr is not None and later(psn, self._rnr) >= 0:
            self._rnr = None
        self.requests.answered = seen.time

    def _response(self, seen: Seen) -> Iterator[Violation]:
        packet, requests = seen.packet, self.requests
        psn, size = packet.psn, len(packet.payload)
        if packet.opcode == BthOpcode.RC_READ_RESPONSE_FIRST:
            requests.learn(size)
        if packet.opcode in _FIRST:
            self._read = next((each for each in reversed(requests.reads) if each.psn == psn), None)
            if self._read is None:
                yield broken(seen, Rule.READ_UNASKED)
        elif psn != self._cursor:
            resumed = any(each.psn == psn for each in requests.reads)
            yield broken(seen, Rule.READ_RESUMED if resumed else Rule.READ_ORDER)
            self._read = requests.inside_read(psn)
        if self._read is not None:
            requests.answered = seen.time
            yield from self._size(seen, self._read, size)
        self._cursor = None if packet.opcode in _LAST else psn + 1 & PSN_MASK

    def _size(self, seen: Seen, read: Read, size: int) -> Iterator[Violation]:
        mtu = self.requests.pmtu
        if seen.packet.opcode not in _LAST:
            right = size == mtu
        else:
            before = later(seen.packet.psn, read.psn) * mtu
            right = before + size == read.length
        if not right:
            yield broken(seen, Rule.READ_SIZE, f"{size} bytes")


Place = tuple[bytes, bytes, int]
"""Source GID, destination GID, and queue pair of the packets of one direction."""


@dataclass
class Checker:
    """Holds packets, in order, against the rules; CNPs are `interval` ns apart at least."""

    interval: int = 0
    flows: dict[Place, Requests] = field(default_factory=dict)
    unpaired: int = 0
    """Answers that came before anything showed to which requests."""
    _ended: int = 0  # The number of connections that are over, since their queue pair began another
    _before: list[GoBack] = field(default_factory=list)  # The retransmissions of those
    _answers: dict[Place, Answers] = field(default_factory=dict)
    _taken: set[Place] = field(default_factory=set)  # Flows of requests whose answers are known
    _marked: set[tuple[bytes, bytes]] = field(default_factory=set)
    _cnp: dict[Place, int] = field(default_factory=dict)

    def take(self, seen: Seen) -> Iterator[Violation]:
        """Take the next packet; yields what it breaks."""
        place = seen.source, seen.target, seen.qpn
        if seen.marked:
            self._marked.add((seen.source, seen.target))
        if seen.packet.opcode + seen.packet.service == BthOpcode.CNP:
            yield from self._congestion(seen, place)
        elif seen.is_answer and seen.packet.service != UNRELIABLE_SERVICE:
            if (answers := self._answers_of(seen, place)) is not None:
                yield from answers.take(seen)
        else:
            flow = self.flows.get(place)
            if flow is None or flow.begins_anew(seen):
                flow = self._begin(place)
            yield from flow.take(seen)

    @property
    def went_back(self) -> list[GoBack]:
        """The retransmissions of all connections."""
        return self._before + [each for flow in self.flows.values() for each in flow.went_back]

    @property
    def connections(self) -> int:
        """The number of flows of requests, those of earlier connections included."""
        return self._ended + len(self.flows)

    def _begin(self, place: Place) -> Requests:
        """Begin a connection; one that the same queue pair had before is over."""
        before = self.flows.get(place)
        if before is not None:
            self._ended += 1
            self._before += before.went_back
            self._answers = {
                at: each for at, each in self._answers.items() if each.requests is not before
            }
            self._taken.discard(place)
        self.flows[place] = Requests(place[2])
        return self.flows[place]

    def _answers_of(self, seen: Seen, place: Place) -> Answers | None:
        """Return the answers that a packet belongs to: those to requests with such a PSN."""
        known = self._answers.get(place)
        if known is not None and known.requests.may_be_answered(seen.packet.psn):
            return known
        fitting = [
            other
            for other, flow in self.flows.items()
            if other[:2] == (seen.target, seen.source)
            and other not in self._taken
            and flow.may_be_answered(seen.packet.psn)
        ]
        if len(fitting) != 1:
            self.unpaired += known is None
            return known
        self._taken.add(fitting[0])
        self._answers[place] = Answers(self.flows[fitting[0]])
        return self._answers[place]

    def _congestion(self, seen: Seen, place: Place) -> Iterator[Violation]:
        before, self._cnp[place] = self._cnp.get(place), seen.time
        if (seen.target, seen.source) not in self._marked:
            yield Violation(seen.number, seen.time, Rule.CNP_UNMARKED, seen.qpn, 0)
        elif before is not None and seen.time - before < self.interval:
            yield Violation(seen.number, seen.time, Rule.CNP_EARLY, seen.qpn, 0)
