"""Which activities are what a driver does all the time."""

from __future__ import annotations

from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.outcomes import POLLED
from bluebridge.host_tools.analyzer.transaction import OK, Role

_ROLES = (Role.CQ_ARM, Role.EQ_ARM)
_BY_CHANCE = (Fact.SCATTERED, Fact.SCATTERED_RING)
"""How the memory of a queue is scattered."""


def failed(activity: Activity) -> bool:
    """Return True for an activity with another status than OK."""
    return activity.status not in ("", OK)


def routine(activity: Activity) -> str:
    """Return the word of a routine activity; empty for one that a reader wants to see."""
    if failed(activity):
        return ""
    if activity.kind is ActivityKind.COMMAND:
        return activity.name if activity.name in POLLED else ""
    if activity.kind is ActivityKind.CONFIG:
        return str(activity.kind.value)
    if activity.kind is ActivityKind.ACCESS:
        one, adapter = activity.transactions[0], model_of(activity.device).adapter
        if one.role in _ROLES:
            return str(one.role.value)
        if adapter is None or one.role is not Role.REGISTER_READ:
            return ""
        return "read" * adapter.polled(one.bar, one.address, one.data)
    if activity.kind is ActivityKind.NOTE:
        told = activity.transactions[0].told
        return "pieces of memory" if told is not None and told.fact in _BY_CHANCE else ""
    return ""
