"""Interfaces of ports and engines to their face: events to a driver, multicast groups."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.frames.rules import Member


class PortEvents(ABC):
    """The receiver of the events of all ports of one adapter."""

    @abstractmethod
    def link_changed(self, number: int, *, active: bool) -> None:
        """Report that the link of port `number` came up or went down."""

    @abstractmethod
    def management_changed(self, agent: PortAgent, change: Change) -> None:
        """Report that a subnet manager set what `change` names of an InfiniBand port."""


class Groups(ABC):
    """The multicast groups of one adapter, which flow steering rules may replace."""

    @abstractmethod
    def members(self, gid: bytes) -> list[Member]:
        """Return the members that get a copy of a datagram to the group `gid`."""

    @abstractmethod
    def frame_members(self, port: int, address: bytes) -> list[Member]:
        """Return the members that get a copy of a frame to this MAC address of either kind."""

    @abstractmethod
    def frame_default(self, port: int, address: bytes) -> list[int]:
        """Return the QP numbers that want all frames to multicast or to unicast addresses."""
