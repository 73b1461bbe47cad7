"""A fault rule: the messages of a link that it takes, its action, and counts of both.

A packet is matched by its place, too, as checkers of adapters address it: which queue pair, in the
order they are first seen; which of its messages; the PSN behind the beginning of that message, or
of the traffic; and the how manieth time that this PSN passes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from bluebridge.device.fabric.faults.roce_packets import Change, RocePacket
from bluebridge.device.fabric.faults.traits import NONE, Kept, Traits
from bluebridge.device.layout.net.roce import PSN_MASK

MOST_PACKETS: Final = 1 << 16
"""Most packets that are remembered, of all queue pairs of all links; the oldest is forgotten."""
MOST_FLOWS: Final = 1 << 10
"""Most flows of a link that are remembered; the one that was quiet longest is forgotten."""
NO_LIMIT: Final = 1 << 64
IN: Final = "in"
OUT: Final = "out"
BOTH: Final = "both"


class Passed:
    """The packets that have passed any link, by their flow's number and their PSN, oldest first.

    Of each: the number of its message, the PSN at which that began, the times it has passed.
    """

    def __init__(self) -> None:
        self.packets: OrderedDict[int, tuple[int, int, int]] = OrderedDict()
        self.flows = 0
        """How many flows there have been."""


class _Flow:
    """The packets to one queue pair in one role: requests, or answers."""

    def __init__(self, ordinal: int, first: int, passed: Passed) -> None:
        self.ordinal = ordinal
        self.first = first
        self._packets = passed.packets
        passed.flows += 1
        self._number = passed.flows
        self._messages = 0
        self._begin = 0

    def note(self, packet: RocePacket) -> tuple[int, int, int]:
        """Count a packet; return its message, where that began, and the times it has passed."""
        packets, key = self._packets, self._number << 24 | packet.psn
        known = packets.pop(key, None)
        if known is None:
            if packet.begins or not self._messages:
                self._messages += 1
                self._begin = packet.psn
            known = (self._messages, self._begin, 0)
            if len(packets) == MOST_PACKETS:
                packets.popitem(last=False)
        message, begin, times = known
        packets[key] = known = message, begin, times + 1
        return known


class Traffic:
    """The packets that have passed a link, by queue pair, for all its rules alike."""

    def __init__(self, passed: Passed) -> None:
        self._passed = passed
        self._flows: OrderedDict[tuple[str, int, bool], _Flow] = OrderedDict()
        self._counts: dict[tuple[str, bool], int] = {}

    def place(self, packet: RocePacket | None, direction: str) -> Place | None:
        """Count a packet that passes; return its place, None for what is no connection's packet."""
        if packet is None or not packet.connected:
            return None
        key = direction, packet.target_qpn, packet.answers
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) == MOST_FLOWS:
                self._flows.popitem(last=False)
            alike = direction, packet.answers
            self._counts[alike] = count = self._counts.get(alike, 0) + 1
            flow = self._flows[key] = _Flow(count, packet.psn, self._passed)
        self._flows.move_to_end(key)
        message, begin, times = flow.note(packet)
        behind = (packet.psn - begin) & PSN_MASK
        return Place(
            flow.ordinal, message, packet.psn, behind, (packet.psn - flow.first) & PSN_MASK, times
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
    rules; it takes only those that it fits. `of_fault` has number and name of the fault by name
    that the rule belongs to. `matched` counts messages that met its conditions, `taken` those
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
    of_fault: tuple[int, str] = (0, "")
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
