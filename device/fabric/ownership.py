"""The ownership of addresses: a port may not use an address that belongs to another port.

Addresses are MAC addresses and GIDs. A port's first announcement names the address that was burned
into it, which stays its own whatever it announces later, with its link down too. Others belong to
the port that announced them first, until that one announces a set without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from bluebridge.device.fabric.interface import FabricPort

_NOTHING: Final[frozenset[bytes]] = frozenset()


class Ownership:
    """The owners of a fabric's addresses.

    `refused` counts, per port, announcements of an address that belongs to another port.
    """

    def __init__(self) -> None:
        self.refused: dict[FabricPort, int] = {}
        self._burned_in: dict[FabricPort, frozenset[bytes]] = {}
        self._wanted: dict[FabricPort, frozenset[bytes]] = {}
        self._owners: dict[bytes, FabricPort] = {}

    def announce(self, port: FabricPort, addresses: Set[bytes]) -> None:
        """Note the addresses of a port, which replace earlier ones, and determine all owners."""
        wanted = frozenset(addresses)
        self._burned_in.setdefault(port, wanted)
        if self._wanted.get(port) != wanted:
            self._wanted[port] = wanted
            self._settle()
            refused = sum(self._owners[address] is not port for address in wanted)
            if refused:
                self.refused[port] = self.refused.get(port, 0) + refused

    def forget(self, port: FabricPort) -> None:
        """Remove a port that has left, and give its addresses to the ports that want them next."""
        self._burned_in.pop(port, None)
        self._wanted.pop(port, None)
        self.refused.pop(port, None)
        self._settle()

    def _settle(self) -> None:
        before, self._owners = self._owners, {}
        for port, addresses in self._burned_in.items():
            self._give(port, addresses)
        for address, port in before.items():
            if address in self._wanted.get(port, _NOTHING):
                self._owners.setdefault(address, port)
        for port, addresses in self._wanted.items():
            self._give(port, addresses)

    def _give(self, port: FabricPort, addresses: Iterable[bytes]) -> None:
        for address in addresses:
            self._owners.setdefault(address, port)

    def permits(self, port: FabricPort, address: bytes) -> bool:
        """Return True if a port may use an address: its own, or one without an owner."""
        owner = self._owners.get(address)
        return owner is None or owner is port
