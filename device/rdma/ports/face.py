"""The interface of ports to their face: events to a driver."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.fabric.subnet.port import Change, PortAgent


class PortEvents(ABC):
    """The receiver of the events of all ports of one adapter."""

    @abstractmethod
    def link_changed(self, number: int, *, active: bool) -> None:
        """Report that the link of port `number` came up or went down."""

    @abstractmethod
    def management_changed(self, agent: PortAgent, change: Change) -> None:
        """Report that a subnet manager set what `change` names of an InfiniBand port."""
