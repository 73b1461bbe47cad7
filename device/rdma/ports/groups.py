"""Multicast groups as engines look them up."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.ethernet.rules.table import Member


class Groups(ABC):
    """The groups of one adapter, where software keeps them in the place of rules."""

    __slots__ = ()

    @abstractmethod
    def members(self, gid: bytes) -> list[Member]:
        """Return who gets a copy of a datagram to the group `gid`."""

    @abstractmethod
    def frame_members(self, port: int, address: bytes) -> list[Member]:
        """Return who gets a copy of a frame to this MAC address, be it a group's or a station's."""

    @abstractmethod
    def frame_default(self, port: int, address: bytes) -> list[int]:
        """Return who wants all frames to groups, or all others, as the address is."""
