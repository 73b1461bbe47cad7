"""Flow steering rules of one port, and the table that looks packets up.

A rule is a mask and a value of the fields of a packet as the bits of one number: it matches where
number & mask == value, and all rules with one mask are found by one look into a dictionary. Fields
are ordered by how far into a packet they stand, so that the numbers of packets are only as long as
the rules of a port need. Flags say that a header is there: a rule that names a protocol without any
field needs its flag.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from bluebridge.device.refusal import Reason, Refusal

DMAC: Final = 0
SMAC: Final = 48
ETHERTYPE: Final = 96
VLAN: Final = 112
DESTINATION: Final = 128
SOURCE: Final = 160
DESTINATION_PORT: Final = 192
SOURCE_PORT: Final = 208
FLAGS: Final = 224
VNI: Final = 232
INNER: Final = 256
"""Number of bits by which the fields of a frame inside VXLAN lie above the outer ones."""

DGID: Final = 512
QPN: Final = 640
"""Bit offset of the destination queue pair of InfiniBand, in front of which is the GID."""

IPV4: Final = 1 << FLAGS
TCP: Final = 2 << FLAGS
UDP: Final = 4 << FLAGS
VXLAN: Final = 8 << FLAGS
INFINIBAND: Final = 16 << FLAGS

ADDRESS_BITS: Final = (1 << SMAC) - 1
LINK_BITS: Final = (1 << DESTINATION) - 1
OUTER_BITS: Final = VXLAN - 1

BY_ADDRESS, BY_LINK, BY_TRANSPORT, BY_INNER = range(4)

MAX_EQUAL_RULES: Final = 24
"""Most queue pairs that equal rules may name: Linux has entries of 128 bytes for so many."""
MAX_MASKS: Final = 32
"""Different masks of the rules of a port: each costs a look at every packet, some 0.1 us, which the
sender's `pairs.costs` have to cover."""

_SEQUENCE_BITS: Final = 48
_MIDDLE: Final = 1 << (_SEQUENCE_BITS - 1)
_TAG_BITS: Final = 0xFFFF << VLAN

Member = tuple[int, bool]
"""The number of a queue pair, and whether it refuses packets that it sent itself."""


def depth_of(mask: int) -> int:
    """Return how far into a frame the fields of a mask lie.

    `BY_ADDRESS`: its first six bytes, `BY_LINK`: the Ethernet header, `BY_TRANSPORT`: IP and
    transport headers, `BY_INNER`: a frame inside of VXLAN.
    """
    if not mask & ~ADDRESS_BITS:
        return BY_ADDRESS
    if not mask & ~LINK_BITS:
        return BY_LINK
    return BY_INNER if mask & ~OUTER_BITS else BY_TRANSPORT


class RuleMode(IntEnum):
    """The kind of packets that a rule is for."""

    REGULAR = 0
    ALL_DEFAULT = 1
    MULTICAST_DEFAULT = 2
    MIRROR_RECEIVED = 3
    MIRROR_SENT = 4
    UNICAST_SNIFFER = 5
    MULTICAST_SNIFFER = 6


@dataclass(slots=True, eq=False)
class Rule:
    """A rule by which queue pair `qpn` gets the packets that match it in this `mode`.

    A regular one is for packets whose number (a `Field` below) has `value` where `mask` is set. The
    lowest `priority` counts, of equal ones the oldest rule or (`last_first`) the newest.
    `exclusive`: no other queue pair may have the same rule; `allow_loopback`: what the queue pair
    sent itself is for it, too.
    """

    mode: RuleMode
    mask: int
    value: int
    port: int
    qpn: int
    priority: int
    allow_loopback: bool
    exclusive: bool
    last_first: bool


class Entry:
    """All rules of one priority that match the same packets.

    `order` is lower the earlier the entry counts; `members` are in the order they came, one for
    each rule, and `targets` names each queue pair once. `names_address`: all bits of the
    destination address are matched, `names_tag`: the tag of VLAN is.
    """

    __slots__ = (
        "exclusive", "mask", "members", "names_address", "names_tag", "order", "targets", "value",
    )  # fmt: skip

    def __init__(self, rule: Rule, order: int) -> None:
        self.order = order
        self.mask = rule.mask
        self.value = rule.value
        self.exclusive = rule.exclusive
        self.names_address = rule.mask & ADDRESS_BITS == ADDRESS_BITS
        self.names_tag = bool(rule.mask & _TAG_BITS)
        self.members: list[Member] = []
        self.targets: list[Member] = []

    def __lt__(self, other: Entry) -> bool:
        return self.order < other.order

    def count(self) -> None:
        """Name each queue pair of `members`, which have changed, once in `targets`."""
        self.targets = list(dict(self.members).items())


class _SameMask:
    """Entries with one mask, by their value; `first` is no later than the order of any of them."""

    __slots__ = ("entries", "first", "mask")

    def __init__(self, mask: int, first: int) -> None:
        self.mask = mask
        self.first = first
        self.entries: dict[int, list[Entry]] = {}


class RuleTable:
    """The rules of one port, which name the queue pairs that get a packet.

    `depth` is how far into an Ethernet frame the rules look (`depth_of`), `sniffers` says
    whether there are any that want copies of what comes in, `mirrors` the same of what the port
    sends. Rules of InfiniBand are not looked at for frames (`_frame_groups`), none of which they
    match.
    """

    __slots__ = (
        "_frame_groups", "_groups", "_modes", "_sequence", "depth", "mirrors", "sniffers",
    )  # fmt: skip

    def __init__(self) -> None:
        self._sequence = 0
        self.clear()

    def clear(self) -> None:
        """Remove all rules."""
        self._groups: list[_SameMask] = []
        self._frame_groups: list[_SameMask] = []
        self._modes: dict[RuleMode, list[Member]] = {}
        self.depth = BY_ADDRESS
        self.sniffers = self.mirrors = False

    # -- changes --------------------------------------------------------------------------------

    def add(self, rule: Rule) -> Entry | None:
        """Add a rule; returns the entry it belongs to, None where its mode needs none.

        Raises `Refusal`, and has changed nothing then: LIMIT when there are too many masks or
        members, BUSY when the same rule is another queue pair's alone.
        """
        member = rule.qpn, not rule.allow_loopback
        if rule.mode is not RuleMode.REGULAR:
            self._add_mode(rule.mode, member)
            return None
        entry = self._entry(rule) or self._insert(rule)
        entry.members.append(member)
        entry.count()
        return entry

    def _add_mode(self, mode: RuleMode, member: Member) -> None:
        members = self._modes.setdefault(mode, [])
        if len(members) >= MAX_EQUAL_RULES:
            raise Refusal(Reason.LIMIT, f"{MAX_EQUAL_RULES} rules of {mode.name}")
        members.append(member)
        self._summarise()

    def remove(self, rule: Rule, entry: Entry | None) -> None:
        """Remove a rule; `entry` is what `add` returned."""
        member = rule.qpn, not rule.allow_loopback
        if entry is None:
            self._modes[rule.mode].remove(member)
        else:
            entry.members.remove(member)
            entry.count()
            if not entry.members:
                self._drop(entry)
        self._summarise()

    def _entry(self, rule: Rule) -> Entry | None:
        """Return the entry of equal rules; None unless there is one that the rule may join."""
        group = self._group(rule.mask)
        same = group.entries.get(rule.value, []) if group is not None else []
        for entry in same:
            if entry.order >> _SEQUENCE_BITS == rule.priority:
                if entry.exclusive or rule.exclusive:
                    raise Refusal(Reason.BUSY, "the rule is one queue pair's alone")
                if len(entry.members) >= MAX_EQUAL_RULES:
                    raise Refusal(Reason.LIMIT, f"{MAX_EQUAL_RULES} equal rules")
                return entry
        return None

    def _insert(self, rule: Rule) -> Entry:
        self._sequence += 1
        place = _MIDDLE - self._sequence if rule.last_first else _MIDDLE + self._sequence
        order = rule.priority << _SEQUENCE_BITS | place
        group = self._group(rule.mask)
        if group is None:
            if len(self._groups) >= MAX_MASKS:
                raise Refusal(Reason.LIMIT, f"{MAX_MASKS} different masks")
            group = _SameMask(rule.mask, order)
            self._groups.append(group)
        entry = Entry(rule, order)
        insort(group.entries.setdefault(rule.value, []), entry)
        group.first = min(group.first, order)
        self._summarise()
        return entry

    def _drop(self, entry: Entry) -> None:
        group = self._group(entry.mask)
        if group is None:
            return
        same = group.entries[entry.value]
        same.remove(entry)
        if not same:
            del group.entries[entry.value]
        if not group.entries:
            self._groups.remove(group)

    def _group(self, mask: int) -> _SameMask | None:
        return next((group for group in self._groups if group.mask == mask), None)

    def _summarise(self) -> None:
        self._groups.sort(key=_first_of)
        frames = [group for group in self._groups if not group.mask & INFINIBAND]
        self._frame_groups = frames
        self.depth = max([depth_of(group.mask) for group in frames], default=BY_ADDRESS)
        self.sniffers = any(self._modes.get(mode) for mode in _COPIES)
        self.mirrors = bool(self._modes.get(RuleMode.MIRROR_SENT))

    # -- packets --------------------------------------------------------------------------------

    def find(self, number: int) -> Entry | None:
        """Return the entry that an Ethernet frame with these fields belongs to, or None."""
        return _first_match(self._frame_groups, number)

    def find_datagram(self, number: int) -> Entry | None:
        """Return the entry that a datagram with these fields belongs to, or None."""
        return _first_match(self._groups, number)

    def of_mode(self, mode: RuleMode) -> list[Member]:
        """Return the queue pairs that rules of one mode name."""
        return self._modes.get(mode, [])

    def default(self, address: int) -> list[Member]:
        """Return the members that get a frame no rule matches; `address` is its first byte."""
        everything = self.of_mode(RuleMode.ALL_DEFAULT)
        if not address & 1:
            return everything
        groups = self.of_mode(RuleMode.MULTICAST_DEFAULT)
        return everything + groups if groups else everything

    def copies(self, address: int) -> list[Member]:
        """Return the members that get a copy of each incoming frame, besides its receivers."""
        kind = RuleMode.MULTICAST_SNIFFER if address & 1 else RuleMode.UNICAST_SNIFFER
        return self.of_mode(RuleMode.MIRROR_RECEIVED) + self.of_mode(kind)


_COPIES: Final = (RuleMode.MIRROR_RECEIVED, RuleMode.UNICAST_SNIFFER, RuleMode.MULTICAST_SNIFFER)


def _first_match(groups: list[_SameMask], number: int) -> Entry | None:
    """Return the first entry by order that matches a number; `groups` are sorted by `first`."""
    best: Entry | None = None
    for group in groups:
        if best is not None and best.order < group.first:
            break
        found = group.entries.get(number & group.mask)
        if found is not None and (best is None or found[0].order < best.order):
            best = found[0]
    return best


def _first_of(group: _SameMask) -> int:
    return group.first
