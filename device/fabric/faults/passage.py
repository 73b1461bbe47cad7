"""The place of a packet in the traffic of its queue pair, as checkers of adapters address it.

Which queue pair, in the order they are first seen; which of its messages; the PSN behind the
beginning of that message, or of the traffic; and the how manieth time that this PSN passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bluebridge.device.fabric.faults.roce_packets import RocePacket
from bluebridge.device.layout.net.roce import PSN_MASK

MOST_PSNS: Final = 1 << 16
"""Most PSNs of a queue pair that are remembered; then all are forgotten."""
MOST_PAIRS: Final = 1 << 10


@dataclass(slots=True)
class _Flow:
    """The packets to one queue pair in one role: requests, or answers."""

    ordinal: int
    first: int
    messages: int = 0
    begin: int = 0
    seen: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By PSN: number of the message, PSN at which that began, times it has passed."""

    def note(self, packet: RocePacket) -> tuple[int, int, int]:
        """Count a packet; return its message, where that began, and the times it has passed."""
        known = self.seen.get(packet.psn)
        if known is None:
            if packet.begins or not self.messages:
                self.messages += 1
                self.begin = packet.psn
            known = (self.messages, self.begin, 0)
            if len(self.seen) == MOST_PSNS:
                self.seen.clear()
        message, begin, times = known
        self.seen[packet.psn] = message, begin, times + 1
        return self.seen[packet.psn]


class Traffic:
    """The packets that have passed a link, by queue pair, for all its rules alike."""

    def __init__(self) -> None:
        self._flows: dict[tuple[str, int, bool], _Flow] = {}

    def place(self, packet: RocePacket | None, direction: str) -> Place | None:
        """Count a packet that passes; return its place, None for what is no connection's packet."""
        if packet is None or not packet.connected:
            return None
        key = direction, packet.target_qpn, packet.answers
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) == MOST_PAIRS:
                self._flows.clear()
            alike = sum(
                (way, answers) == (direction, packet.answers) for way, _, answers in self._flows
            )
            flow = self._flows[key] = _Flow(1 + alike, packet.psn)
        message, begin, times = flow.note(packet)
        behind = packet.psn - begin & PSN_MASK
        return Place(
            flow.ordinal, message, packet.psn, behind, packet.psn - flow.first & PSN_MASK, times
        )


class Place(NamedTuple):
    """The place of a packet; `behind` counts PSNs from its message's first, `late` from all's."""

    qp: int
    message: int
    psn: int
    behind: int
    late: int
    transmission: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Conditions on a packet's place; None where there is none.

    `offset` is a PSN relative to the message named, or to the first packet of the queue pair; `psn`
    one as it is on the wire.
    """

    qp: int | None = None
    message: int | None = None
    psn: int | None = None
    offset: int | None = None
    transmission: int | None = None

    def holds(self, place: Place | None) -> bool:
        """Return True if a packet's place meets all conditions."""
        if place is None:
            return False
        offset = place.late if self.message is None else place.behind
        found = (place.qp, place.message, place.psn, offset, place.transmission)
        wanted = (self.qp, self.message, self.psn, self.offset, self.transmission)
        return all(want in (None, have) for want, have in zip(wanted, found, strict=True))
