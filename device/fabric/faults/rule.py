"""A fault rule: the messages of a link that it takes, its action, and counts of both.

A packet is matched by its place, too, as checkers of adapters address it: which queue pair, in the
order they are first seen; which of its messages; the PSN behind the beginning of that message, or
of the traffic; and the how manieth time that this PSN passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from bluebridge.device.fabric.faults.roce_packets import Change, RocePacket
from bluebridge.device.fabric.faults.traits import NONE, Kept, Traits
from bluebridge.device.layout.net.roce import PSN_MASK

MOST_PSNS: Final = 1 << 16
"""Most PSNs of a queue pair that are remembered; then all are forgotten."""
MOST_PAIRS: Final = 1 << 10
NO_LIMIT: Final = 1 << 64
IN: Final = "in"
OUT: Final = "out"
BOTH: Final = "both"


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


@dataclass(slots=True)
class Match:
    """Conditions that must all hold; without any, every message matches.

    `shortest` and `longest` bound the bytes of a message. The immediate value must be `immediate`
    where `immediate_mask` has ones.
    """

    kinds: frozenset[str] = frozenset()
    opcodes: frozenset[str] = frozenset()
    cm: frozenset[int] = frozenset()
    qpn: int | None = None
    source_qpn: int | None = None
    target_qpn: int | None = None
    shortest: int = 0
    longest: int = NO_LIMIT
    immediate: int | None = None
    immediate_mask: int = 0xFFFFFFFF
    payload: bytes = b""
    passage: Passage | None = None

    def holds(self, it: Traits, place: Place | None = None) -> bool:
        """Return True if a message meets all conditions."""
        if self.passage is not None and not self.passage.holds(place):
            return False
        if not self._sort_holds(it) or not self.shortest <= it.length <= self.longest:
            return False
        if self.qpn is not None and self.qpn not in (it.source_qpn, it.target_qpn):
            return False
        if self.source_qpn not in (None, it.source_qpn):
            return False
        if self.target_qpn not in (None, it.target_qpn):
            return False
        if self.immediate is not None and (it.immediate ^ self.immediate) & self.immediate_mask:
            return False
        if self.cm and it.cm_attribute() not in self.cm:
            return False
        return it.beginning(len(self.payload)) == self.payload

    def may_hold(self, it: Traits) -> bool:
        """Return False if no message of the same sort (`traits.sort_of`) meets all conditions."""
        return self.passage is not None or self._sort_holds(it)  # whose traffic is counted

    def _sort_holds(self, it: Traits) -> bool:
        if (self.kinds and it.kind not in self.kinds) or (
            self.opcodes and it.opcode not in self.opcodes
        ):
            return False
        if self.cm and it.kind in ("request", "response"):
            return False
        return self.immediate is None or it.immediate != NONE


class Action(NamedTuple):
    """An action of rules: the bus log's word, how often a message goes on, whether it waits."""

    verb: str
    passes: int = 0
    keeps: bool = False


ACTIONS: Final = {
    "drop": Action("drops"),
    "delay": Action("delays", keeps=True),
    "duplicate": Action("duplicates", passes=1, keeps=True),
    "flip": Action("flips", passes=1),
    "corrupt": Action("corrupts", passes=1),
    "ecn": Action("marks", passes=1),
    "rewrite": Action("rewrites", passes=1),
    "rate": Action("keeps", keeps=True),
    "hold": Action("holds", keeps=True),
}


@dataclass(slots=True, eq=False)
class Rule:
    """A rule for one direction of a link or both; `words` are its words as they were written.

    `action` is one of `fault_words.ACTIONS`, `seconds` the time of those that have one,
    `bits_per_second` that of a `rate`, `change` what becomes of packets that go on to the next
    rules; it takes only those that it fits. `label` is the fault by name that the rule belongs to,
    such as `fault 3 ack-lost: `. `matched` counts messages that met its conditions, `taken` those
    it acted on, `lost` those of them it should have kept, had there been room. `kept` has the
    messages that still wait, in the order they came.
    """

    action: str
    words: str
    match: Match
    direction: str = BOTH
    change: Change | None = None
    seconds: float = 0.0
    bits_per_second: float = 0.0
    skip: int = 0
    count: int = NO_LIMIT
    probability: float = 1.0
    seed: int = 0
    number: int = 0
    label: str = ""
    matched: int = 0
    taken: int = 0
    lost: int = 0
    kept: dict[int, Kept] = field(default_factory=dict)
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)

    def first_kept(self, direction: str) -> int | None:
        """Return the serial number of the first message that waits in a direction."""
        return next((n for n, kept in self.kept.items() if kept.direction == direction), None)

    def takes(self, it: Traits, direction: str, place: Place | None = None) -> bool:
        """Return True if the rule acts on a message of this direction and place, and count it."""
        if self.direction not in (BOTH, direction) or not self.match.holds(it, place):
            return False
        if self.change is not None and (it.packet is None or not self.change.fits(it.packet)):
            return False
        self.matched += 1
        if self.matched <= self.skip or self.taken >= self.count:
            return False
        if self.probability < 1.0 and self.chance.random() >= self.probability:
            return False
        self.taken += 1
        return True
