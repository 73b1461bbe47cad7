"""The checker: packets of all connections in, violations and retransmissions out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bluebridge.device.layout.net.roce import UNRELIABLE_SERVICE, BthOpcode
from bluebridge.host_tools.analyzer.wire_check.answers import Answers
from bluebridge.host_tools.analyzer.wire_check.requests import GoBack, Requests
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Violation
from bluebridge.host_tools.analyzer.wire_check.seen import Seen

Place = tuple[bytes, bytes, int]
"""Source GID, destination GID, and queue pair of the packets of one direction."""


@dataclass
class Checker:
    """Holds packets against the rules, in the order in which they left their senders.

    `interval` is the least time between two CNPs for a queue pair in ns.
    """

    interval: int = 0
    flows: dict[Place, Requests] = field(default_factory=dict)
    unpaired: int = 0
    """Answers that came before anything showed to which requests."""
    _ended: int = 0
    """The number of connections that are over, since their queue pair began another."""
    _before: list[GoBack] = field(default_factory=list)
    """The retransmissions of those."""
    _answers: dict[Place, Answers] = field(default_factory=dict)
    _taken: set[Place] = field(default_factory=set)
    """Flows of requests whose answers are known."""
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
