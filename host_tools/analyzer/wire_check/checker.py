"""The checker: packets of all connections in, violations and retransmissions out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.device.layout.net.roce import UNRELIABLE_SERVICE, BthOpcode
from bluebridge.host_tools.analyzer.wire_check.answers import Answers
from bluebridge.host_tools.analyzer.wire_check.causes import Causes
from bluebridge.host_tools.analyzer.wire_check.requests import KEPT, Requests
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Seen, Violation

Place = tuple[bytes, bytes, int]
"""Source GID, destination GID, and queue pair of the packets of one direction."""

MOST_FLOWS: Final = 512
"""Flows that are remembered, and bound for other things that a record may have any number of."""
MOST_PACKETS: Final = 2 * KEPT
"""Packets that are remembered of all flows together."""


class Checker:
    """Holds packets, in order, against the rules; CNPs are `interval` ns apart at least.

    Of more flows than it remembers, those that were silent for longest are taken for new ones when
    they go on. `unpaired` are answers that came before anything showed to which requests.
    """

    def __init__(self, interval: int = 0, causes: Causes | None = None) -> None:
        self.causes = Causes() if causes is None else causes
        self.connections = 0
        self.unpaired = 0
        self._interval = interval
        self._flows: dict[Place, Requests] = {}
        self._answers: dict[Place, Answers] = {}
        self._taken: set[Place] = set()  # Flows of requests whose answers are known
        self._senders: dict[Place, Place] = {}  # Flows by the place of their answers, of logs
        self._marked: set[tuple[bytes, bytes]] = set()
        self._cnp: dict[Place, int] = {}
        self._packets = 0  # Those that the flows remember

    def take(self, seen: Seen) -> Iterator[Violation]:
        """Take the next packet; yields what it breaks."""
        place = seen.source, seen.target, seen.qpn
        if seen.marked and len(self._marked) < MOST_FLOWS:
            self._marked.add((seen.source, seen.target))
        if seen.packet.opcode + seen.packet.service == BthOpcode.CNP:
            yield from self._congestion(seen, place)
        elif seen.is_answer and seen.packet.service != UNRELIABLE_SERVICE:
            if (answers := self._answers_of(seen, place)) is not None:
                yield from answers.take(seen)
        else:
            flow = self._flow(seen, place)
            if seen.sender:
                self._note_sender((seen.target, seen.source, seen.sender), place)
            before = len(flow.sent)
            yield from flow.take(seen)
            self._packets += len(flow.sent) - before
            if self._packets > MOST_PACKETS:
                self._thin_out()

    def _note_sender(self, answers: Place, place: Place) -> None:
        self._senders.pop(answers, None)
        self._senders[answers] = place
        if len(self._senders) > MOST_FLOWS:
            oldest = next(iter(self._senders))
            del self._senders[oldest]
            self._answers.pop(oldest, None)

    def gap(self) -> None:
        """Forget everything: packets are missing here, of any connection."""
        for place in list(self._flows):
            self._forget(place)

    def _flow(self, seen: Seen, place: Place) -> Requests:
        """Return the flow of a request, which is the last to be forgotten now."""
        flow = self._flows.pop(place, None)
        if flow is not None and flow.begins_anew(seen):
            self._flows[place] = flow
            self._forget(place)
            flow = None
        if flow is None:
            self.connections += 1
            flow = Requests(seen, self.causes)
        while len(self._flows) >= MOST_FLOWS:
            self._forget(next(iter(self._flows)))
        self._flows[place] = flow
        return flow

    def _thin_out(self) -> None:
        """Forget half of the packets of the flow with most of them.

        The flow itself stays: answers to what is under way go on belonging to it.
        """
        most = max(self._flows.values(), key=lambda flow: len(flow.sent))
        self._packets -= len(most.sent)
        most.forget((len(most.sent) + 1) // 2)
        self._packets += len(most.sent)

    def _forget(self, place: Place) -> None:
        flow = self._flows.pop(place)
        self._packets -= len(flow.sent)
        for at, answers in list(self._answers.items()):
            if answers.requests is flow:
                del self._answers[at]
        for at, flow_at in list(self._senders.items()):
            if flow_at == place:
                del self._senders[at]
        self._taken.discard(place)

    def _answers_of(self, seen: Seen, place: Place) -> Answers | None:
        """Return the answers that a packet belongs to: those to requests with such a PSN.

        A log also says to which queue pair's requests.
        """
        known = self._answers.get(place)
        told = self._senders.get(place)
        if told is not None:
            if known is None or known.requests is not self._flows[told]:
                self._answers[place] = Answers(self._flows[told])
            self._taken.add(told)
            return self._answers[place]
        if known is not None and known.requests.may_be_answered(seen.packet.psn):
            return known
        fitting = [
            other
            for other, flow in self._flows.items()
            if other[:2] == (seen.target, seen.source)
            and other not in self._taken
            and flow.may_be_answered(seen.packet.psn)
        ]
        if len(fitting) != 1:
            self.unpaired += known is None
            return known
        self._taken.add(fitting[0])
        self._answers[place] = Answers(self._flows[fitting[0]])
        return self._answers[place]

    def _congestion(self, seen: Seen, place: Place) -> Iterator[Violation]:
        before, self._cnp[place] = self._cnp.get(place), seen.time
        if len(self._cnp) > MOST_FLOWS:
            del self._cnp[next(iter(self._cnp))]
        known = len(self._marked) < MOST_FLOWS
        if known and (seen.target, seen.source) not in self._marked:
            yield Violation(seen.number, seen.time, Rule.CNP_UNMARKED, seen.qpn, 0)
        elif before is not None and seen.time - before < self._interval:
            yield Violation(seen.number, seen.time, Rule.CNP_EARLY, seen.qpn, 0)
