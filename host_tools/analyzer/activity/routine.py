"""Which activities are what a driver does all the time."""

from __future__ import annotations

from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.outcomes import POLLED
from bluebridge.host_tools.analyzer.transaction import OK, Role

_ROLES = (Role.CQ_ARM, Role.EQ_ARM)
_BY_CHANCE = (Fact.SCATTERED, Fact.SCATTERED_RING)
"""How the memory of a queue is scattered."""
_READS = ("read CTL.clock", "read CTL.catas=0x0", "read HCR.")


def failed(activity: Activity) -> bool:
    """Return True for an activity with another status than OK."""
    return activity.status not in ("", OK)


def routine(activity: Activity) -> str:
    """Return the word of a routine activity; empty for one that a reader wants to see."""
    if failed(activity):
        return ""
    title = activity.title
    if activity.kind is ActivityKind.COMMAND:
        name = title.partition(" ")[0]
        return name if name in POLLED else ""
    if activity.kind is ActivityKind.CONFIG:
        return str(activity.kind.value)
    if activity.kind is ActivityKind.ACCESS:
        role = activity.transactions[0].role
        return str(role.value) if role in _ROLES else "read" * title.startswith(_READS)
    if activity.kind is ActivityKind.NOTE:
        told = activity.transactions[0].told
        return "pieces of memory" if told is not None and told.fact in _BY_CHANCE else ""
    return ""
