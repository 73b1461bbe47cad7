"""The states of a port, those of its peer that change them, and who is told (ntrdma_port.c)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from bluebridge.device.layout.ntrdma.port import PortState


class Row(NamedTuple):
    """The states of the peer that advance a state, and those that leave it as it is."""

    advance: frozenset[int]
    tolerate: frozenset[int]


ROWS = {
    PortState.RESET_REQUESTED: Row(frozenset({1, 2}), frozenset(range(7))),
    PortState.RESET_ACKNOWLEDGED: Row(frozenset({2, 3}), frozenset(range(7))),
    PortState.SPADS_READY: Row(frozenset({3, 4}), frozenset({2})),
    PortState.INIT_READY: Row(frozenset({4, 5}), frozenset({3})),
    PortState.CONF_READY: Row(frozenset({5, 6}), frozenset({4})),
    PortState.READY: Row(frozenset({6}), frozenset({5})),
}


class PortOwner(Protocol):
    """The calls that a port makes when its state changes."""

    def restart(self) -> None:
        """Forget everything of the peer and start own rings anew; its stores land no more."""

    def init_block(self) -> bytes:
        """Return a PEER_INFO with the init values of this side."""

    def introduced(self) -> None:
        """Begin the rings where the peer's stand, as its init block says."""

    def conf_block(self) -> bytes:
        """Return a PEER_INFO with the conf values of this side."""

    def enabled(self) -> None:
        """Make twins of all resources at the peer, which is ready."""

    def disabled(self) -> None:
        """End what waits for the peer, which is lost; nothing is under way any more."""

    def quiescing(self) -> None:
        """Note that the port begins to disconnect from its peer."""
