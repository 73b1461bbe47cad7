"""What ports of every RoCE adapter have: a MAC address, GIDs, the MTU that follows from frames."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from bluebridge.device.layout.net.ip import ROCE_V2
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.values import PortAttr

MTU = 1500
"""Of Ethernet: drivers set no other."""
GID_BYTES, MAC_BYTES = 16, 6
NO_GID = bytes(GID_BYTES)


def link_local_gid(mac: bytes) -> bytes:
    """Return the default GID of RoCE: fe80::/64 and the MAC as modified EUI-64."""
    return b"\xfe\x80" + bytes(6) + bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:]


class GidTable(ABC):
    """The addresses of a port; `roce_v2` says whether the adapter speaks RoCE v2.

    Raises `HcaError` if `mac` is not a valid address of a port.
    """

    def __init__(self, mac: bytes, eth_mtu: int, most_gids: int, roce_v2: bool) -> None:
        if len(mac) != MAC_BYTES or mac[0] & 1 or not any(mac):
            raise HcaError(f"{mac.hex(':')} is not a unicast MAC address")
        self.mac = mac
        self.eth_mtu = eth_mtu
        self.roce_v2 = roce_v2
        self.gids: list[bytes] = [link_local_gid(mac)]
        self.active = False
        self._most_gids = most_gids
        self._lock = threading.Lock()

    @abstractmethod
    def _write_gids(self) -> None:
        """Tell the device the present GIDs."""

    @abstractmethod
    def _link_is_up(self) -> bool:
        """Ask the device for the state of the link."""

    def refresh(self) -> PortAttr:
        """Query the device for the port's state and return it."""
        self.active = self._link_is_up()
        return PortAttr(self.active, self.mac, self.rdma_mtu, self.eth_mtu, tuple(self.gids))

    @property
    def rdma_mtu(self) -> int:
        """Return the largest RDMA path MTU whose packets fit into the port's frames."""
        fitting = [size for size in (256, 512, 1024, 2048, 4096) if size + 60 <= self.eth_mtu]
        return fitting[-1] if fitting else 256

    def add_gid(self, gid: bytes) -> int:
        """Put a GID into the table and return its index; a present one keeps its index."""
        if len(gid) != GID_BYTES or gid == NO_GID:
            raise VerbsError(f"{gid.hex()} is not a GID")
        with self._lock:
            if gid in self.gids:
                return self.gids.index(gid)
            if NO_GID in self.gids:
                index = self.gids.index(NO_GID)
                self.gids[index] = gid
            elif len(self.gids) < self._most_gids:
                index = len(self.gids)
                self.gids.append(gid)
            else:
                raise VerbsError("the GID table is full")
            self._write_gids()
            return index

    def roce_version(self, gid_index: int) -> int:
        """Return the version of RoCE, 1 or 2, that packets from a GID of the table have.

        The link-local GID keeps version 1. The others are of version 2 where the adapter speaks
        it, as rdma_cm chooses (core/cma.c: cma_get_default_gid_type).
        """
        return ROCE_V2 if self.roce_v2 and gid_index else 1

    def remove_gid(self, gid: bytes) -> None:
        """Take a GID out of the table; the other GIDs keep their indices."""
        with self._lock:
            if gid in self.gids:
                self.gids[self.gids.index(gid)] = NO_GID
                self._write_gids()
