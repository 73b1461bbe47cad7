"""Device-managed steering rules as drivers write them (Linux `mlx4/mcg.c: mlx4_flow_attach`)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.frames import rules
from bluebridge.device.frames.rules import (
    ADDRESS_BITS,
    INFINIBAND,
    Entry,
    Rule,
    RuleMode,
    RuleTable,
)
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.steering import RULE_CONTROL, RULE_HEADERS, RuleHeader
from bluebridge.device.layout.mlx4.steering import RuleMode as CardMode
from bluebridge.device.mlx4.settings.capabilities import HIGH_RATE_COUNT, HIGH_RATE_FIRST
from bluebridge.device.mlx4.settings.parameters import CommandError, HighRate, Parameters

FULL_TYPE: Final = 0xFFFF
_LAYERS: Final = {
    RuleHeader.ETHERNET: 1,
    RuleHeader.INFINIBAND: 1,
    RuleHeader.IPV4: 2,
    RuleHeader.TCP: 3,
    RuleHeader.UDP: 3,
    RuleHeader.VXLAN: 4,
}
_PORTS: Final = {"destination": rules.DESTINATION_PORT, "source": rules.SOURCE_PORT}
_WANTED: Final[dict[RuleHeader, tuple[int, dict[str, int]]]] = {
    RuleHeader.ETHERNET: (0, {"dmac": rules.DMAC, "smac": rules.SMAC, "vlan": rules.VLAN}),
    RuleHeader.INFINIBAND: (rules.INFINIBAND, {"dgid": rules.DGID, "qpn": rules.QPN}),
    RuleHeader.IPV4: (rules.IPV4, {"destination": rules.DESTINATION, "source": rules.SOURCE}),
    RuleHeader.TCP: (rules.TCP, _PORTS),
    RuleHeader.UDP: (rules.UDP, _PORTS),
    RuleHeader.VXLAN: (rules.VXLAN, {"vni": rules.VNI}),
}
"""A header's flag, and where its fields are that have a mask, `NAME_mask`, in a match's number."""
_OUTER_ONLY: Final = frozenset((RuleHeader.INFINIBAND, RuleHeader.VXLAN))
_MODES: Final = {int(mode): RuleMode[mode.name] for mode in CardMode}

_KINDS: Final = frozenset(int(kind) for kind in RULE_HEADERS)

MAX_RULES: Final = 1 << 16
"""Most rules at a time: Linux asks INIT_HCA for 2^17 (MLX4_FS_NUM_MCG), whatever is offered."""


class Match:
    """The match of a rule: packets whose number (`device.frames.rules`) has `value` in `mask`.

    Built header by header; raises `CommandError` (BAD_PARAM) for one that is out of order.
    """

    def __init__(self) -> None:
        self.mask = 0
        self.value = 0
        self._base = 0
        self._layer = 0

    def add(self, kind: RuleHeader, raw: bytes) -> None:
        """Add one header of the rule.

        That of InfiniBand may come twice: Linux puts an empty one in front of each rule
        (`ib/main.c: __mlx4_ib_create_default_rules`).
        """
        layer = _LAYERS[kind]
        least = layer if kind is RuleHeader.INFINIBAND else layer - 1
        if self._layer > least or (kind in _OUTER_ONLY and self._base):
            raise CommandError(Status.BAD_PARAM, f"{kind.name} header out of order")
        self._layer = layer
        get = RULE_HEADERS[kind].get
        flag, fields = _WANTED[kind]
        self._want(0, flag, flag)
        for name, position in fields.items():
            value = get(raw, name)
            if value or name != "qpn":  # Linux says 0 with a full mask for any queue pair
                self._want(position, value, get(raw, f"{name}_mask"))
        if kind is RuleHeader.ETHERNET and get(raw, "match_type"):
            self._want(rules.ETHERTYPE, get(raw, "ethertype"), FULL_TYPE)
        if kind is RuleHeader.VXLAN:
            self._base, self._layer = rules.INNER, 0

    def _want(self, position: int, value: int, mask: int) -> None:
        shift = position + self._base
        self.mask |= mask << shift
        self.value |= (value & mask) << shift


def rule_of(raw: bytes) -> Rule:
    """Return the rule in the bytes of a mailbox, all of which belong to it.

    Raises `CommandError` (BAD_PARAM) for a mode or header that is unknown or out of order, and for
    sizes that are not those of the headers.
    """
    get = RULE_CONTROL.get
    if len(raw) < RULE_CONTROL.size:
        raise CommandError(Status.BAD_PARAM, f"a rule of {len(raw)} bytes")
    mode = _MODES.get(get(raw, "mode"))
    if mode is None:
        raise CommandError(Status.BAD_PARAM, f"mode {get(raw, 'mode')}")
    match = _match(raw)
    return Rule(
        mode,
        match.mask,
        match.value,
        port=get(raw, "port"),
        qpn=get(raw, "qpn"),
        priority=get(raw, "priority"),
        allow_loopback=bool(get(raw, "allow_loopback")),
        exclusive=bool(get(raw, "exclusive")),
        last_first=bool(get(raw, "last_first")),
    )


def _match(raw: bytes) -> Match:
    match, position = Match(), RULE_CONTROL.size
    while position < len(raw):
        word = raw[position : position + 4]
        size = 4 * word[0]
        kind = int.from_bytes(word[2:4], "big")
        table = RULE_HEADERS.get(RuleHeader(kind)) if kind in _KINDS else None
        if table is None or size != table.size or position + size > len(raw):
            raise CommandError(Status.BAD_PARAM, f"header {kind:#x} of {size} bytes")
        match.add(RuleHeader(kind), raw[position : position + size])
        position += size
    return match


class Registrations:
    """The steering rules that drivers attached to one HCA."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._rules: dict[int, tuple[RuleTable, Rule, Entry | None]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._rules)

    def reset(self) -> None:
        """Forget all rules; the tables of their ports are emptied elsewhere."""
        self._rules.clear()

    def attach(self, table: RuleTable, rule: Rule) -> int:
        """Add a rule to the table of its port; returns its number, never 0.

        Raises `CommandError`: EXCEED_LIM when the table is full, BAD_SYS_STATE for what static A0
        steering does not know, and what `RuleTable.add` raises.
        """
        if len(self._rules) >= min(MAX_RULES, 1 << self._parameters.log_rules):
            raise CommandError(Status.EXCEED_LIM, f"{len(self._rules)} rules")
        if self._parameters.high_rate == HighRate.STATIC and not _fits_static(rule):
            raise CommandError(Status.BAD_SYS_STATE, "static A0 steering knows addresses only")
        entry = table.add(rule)
        self._last += 1
        self._rules[self._last] = table, rule, entry
        return self._last

    def detach(self, number: int) -> None:
        """Remove a rule; raises `CommandError` (BAD_INDEX) where there is none."""
        found = self._rules.pop(number, None)
        if found is None:
            raise CommandError(Status.BAD_INDEX, f"rule {number:#x}")
        table, rule, entry = found
        table.remove(rule, entry)


def _fits_static(rule: Rule) -> bool:
    """Return True if a frame rule names an address, and a queue pair in the high-rate range."""
    if rule.mode in (RuleMode.ALL_DEFAULT, RuleMode.MULTICAST_DEFAULT):
        return True
    if rule.mask & INFINIBAND:
        return True
    in_range = HIGH_RATE_FIRST <= rule.qpn < HIGH_RATE_FIRST + HIGH_RATE_COUNT
    return in_range and rule.mode is RuleMode.REGULAR and not rule.mask & ~ADDRESS_BITS
