"""The machine of an engine, as far as an engine must ask it or tell it at once."""

from __future__ import annotations

from typing import Protocol

from bluebridge.device.layout.ntrdma.port import PortState


class Host(Protocol):
    """The machine of an engine: what it knows at once, and what it must hear at once."""

    def has_address(self, gid: bytes) -> bool:
        """Return True if the IP address of a GID is this side's."""

    def entered(self, state: PortState) -> None:
        """Note that the port is in another state; a program that dies there must do it now."""
