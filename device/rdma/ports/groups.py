"""The interface by which engines look up multicast groups."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.ethernet.rules import Member


class Groups(ABC):
    """The multicast groups of one adapter, which flow steering rules may replace."""

    __slots__ = ()

    @abstractmethod
    def members(self, gid: bytes) -> list[Member]:
        """Return the members that get a copy of a datagram to the group `gid`."""

    @abstractmethod
    def frame_members(self, port: int, address: bytes) -> list[Member]:
        """Return the members that get a copy of a frame to this MAC address of either kind."""

    @abstractmethod
    def frame_default(self, port: int, address: bytes) -> list[int]:
        """Return the QP numbers that want all frames to multicast or to unicast addresses."""
