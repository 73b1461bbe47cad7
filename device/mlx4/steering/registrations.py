"""The steering rules of one HCA, by the number that attaching returned, and their limits."""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.rules import (
    ADDRESS_BITS,
    INFINIBAND,
    Entry,
    Rule,
    RuleMode,
    RuleTable,
)
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.settings.capabilities import HIGH_RATE_COUNT, HIGH_RATE_FIRST
from bluebridge.device.mlx4.settings.parameters import HighRate, Parameters
from bluebridge.device.mlx4.settings.refusal import CommandError

MAX_RULES: Final = 1 << 16
"""Most rules at a time: Linux asks INIT_HCA for 2^17 (MLX4_FS_NUM_MCG), whatever is offered."""


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
