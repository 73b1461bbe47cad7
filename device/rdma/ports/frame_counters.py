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
"""Classes that frames are counted in: priorities, then frames without a VLAN tag."""


def priority_of(frame: bytes) -> int:
    """The class a frame is counted in: the priority of its outermost VLAN tag, or "no VLAN"."""
    if frame[_TYPE_OFFSET:_TAG_OFFSET] in VLAN_TAG_TYPES and len(frame) > _TAG_OFFSET:
        return frame[_TAG_OFFSET] >> _PRIORITY_SHIFT
    return NO_VLAN_CLASS


class Direction:
    """One direction of a port: a list per quantity, indexed by class."""

    __slots__ = ("broadcast", "dropped", "frames", "multicast", "octets", "unicast")

    def __init__(self) -> None:
        self.frames = [0] * STAT_CLASSES
        self.octets = [0] * STAT_CLASSES
        self.unicast = [0] * STAT_CLASSES
        self.multicast = [0] * STAT_CLASSES
        self.broadcast = [0] * STAT_CLASSES
        self.dropped = 0

    def count(self, frames: Sequence[bytes]) -> None:
        """Frames to the same address with the same tag, without FCS."""
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
    """Both directions; `filtered` are frames that no filter wanted, which are no losses."""

    __slots__ = ("filtered", "rx", "tx")

    def __init__(self) -> None:
        self.rx = Direction()
        self.tx = Direction()
        self.filtered = 0

    def receive(self, frames: Sequence[bytes], *, wanted: bool) -> None:
        """Frames that came from the wire."""
        if wanted:
            self.rx.count(frames)
        else:
            self.filtered += len(frames)
