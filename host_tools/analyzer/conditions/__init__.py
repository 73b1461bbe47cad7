"""Conditions on events: the expressions of `watch --until` and `up --stop-on`."""

from bluebridge.host_tools.analyzer.conditions.condition import Condition, ConditionError

__all__ = ["Condition", "ConditionError"]
