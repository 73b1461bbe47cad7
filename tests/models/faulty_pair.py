"""Fault rules on the links of two guests of the unit tests."""

from __future__ import annotations

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.parse import rule_of
from bluebridge.device.fabric.faults.rule import Rule
from bluebridge.device.fabric.faults.stage import FaultRules
from tests.models.rdma_node import Pair


class Links:
    """The links `a/1` and `b/1` of a pair; rules follow A's clock."""

    def __init__(self, pair: Pair, events: EventLog | None = None) -> None:
        self.rules = FaultRules(pair.a.host.call_later, events or EventLog())
        self.rules.add_link("a/1", "a", pair.a.port, pair.fabric)
        self.rules.add_link("b/1", "b", pair.b.port, pair.fabric)

    def rule(self, link: str, words: str) -> Rule:
        """Put a rule into force."""
        rule = parsed(words)
        self.rules.add(link, rule)
        return rule


def parsed(words: str) -> Rule:
    """The rule that a line of the control socket says; raises `ValueError`."""
    action, *rest = words.split()
    return rule_of(action, rest)
