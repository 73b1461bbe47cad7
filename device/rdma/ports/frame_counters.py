"""Frames and octets of an Ethernet port, by priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.layout.net.ethernet import BROADCAST, VLAN_TAG_TYPES

_TYPE_OFFSET: Final = 12
_TAG_OFFSET: Final = 14
_PRIORITY_SHIFT: Final = 5
NO_VLAN_CLASS: Final = 8
STAT_CLASSES: Final = 9
"""Number of classes that frames are counted in: priorities, and frames without a VLAN tag."""


def priority_of(frame: bytes) -> int:
    """Return a frame's counting class: the priority of its outermost VLAN tag, or "no VLAN"."""
    if frame[_TYPE_OFFSET:_TAG_OFFSET] in VLAN_TAG_TYPES and len(frame) > _TAG_OFFSET:
        return frame[_TAG_OFFSET] >> _PRIORITY_SHIFT
    return NO_VLAN_CLASS


class Direction:
    """The counters of one direction of a port: a list per quantity, indexed by class."""

    __slots__ = ("broadcast", "dropped", "frames", "multicast", "octets", "unicast")

    def __init__(self) -> None:
        self.frames = [0] * STAT_CLASSES
        self.octets = [0] * STAT_CLASSES
        self.unicast = [0] * STAT_CLASSES
        self.multicast = [0] * STAT_CLASSES
        self.broadcast = [0] * STAT_CLASSES
        self.dropped = 0

    def count(self, frames: Sequence[bytes]) -> None:
        """Count frames to the same address with the same tag, given without FCS."""
        first = frames[0]
        number, where = len(frames), priority_of(first)
        self.frames[where] += number
        self.octets[where] += sum(map(len, frames))
        if not first[0] & 1:
            self.unicast[where] += number
        elif first[:6] == BROADCAST:
            self.broadcast[where] += number
        else:
            self.multicast[where] += number


class FrameCounters:
    """The counters of both directions; `filtered` counts frames that the filters rejected."""

    __slots__ = ("filtered", "rx", "tx")

    def __init__(self) -> None:
        self.rx = Direction()
        self.tx = Direction()
        self.filtered = 0

    def receive(self, frames: Sequence[bytes], *, wanted: bool) -> None:
        """Count frames from the wire; those not `wanted` count as filtered."""
        if wanted:
            self.rx.count(frames)
        else:
            self.filtered += len(frames)
