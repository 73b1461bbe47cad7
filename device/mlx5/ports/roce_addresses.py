"""What a port sends from: the addresses of its virtual port, and the table of RoCE addresses.

Linux `core/lib/gid.c`, `ib/main.c: set_roce_addr, mlx5_ib_del_gid`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.objects import ROCE_ADDRESS, ROCE_V2
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.mlx5.settings.capabilities import ROCE_ADDRESSES
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.ports.port_tables import Path, Source, Sources

NO_ADDRESS: Final = bytes(ROCE_ADDRESS.size)


class OwnAddresses(Sources):
    """The addresses of a port: MAC addresses for frames, RoCE addresses by index for messages.

    `macs` are those of the virtual port; none but the burned-in one before software has some.
    """

    def __init__(self, burned_in: bytes) -> None:
        self._burned_in = burned_in
        self.reset()

    def reset(self) -> None:
        self.macs: Sequence[bytes] = ()
        self._entries: dict[int, bytes] = {}
        self._sources: dict[int, Source] = {}

    def of(self, path: Path) -> Source:
        """Return the RoCE address that a path names; one without a GID if there is none."""
        found = self._sources.get(path.gid_index)
        return Source(self.mac, NO_GID, NO_VLAN, 1) if found is None else found

    @property
    def mac(self) -> bytes:
        return self.macs[0] if self.macs else self._burned_in

    def macs_in_use(self) -> frozenset[bytes]:
        own = frozenset(self.macs or (self._burned_in,))
        return own | {source.mac for source in self._sources.values()}

    def gids_in_use(self) -> frozenset[bytes]:
        return frozenset(source.gid for source in self._sources.values())

    def entry(self, index: int) -> bytes:
        """Return a RoCE address as software set it; zeros without one. Raises `Refused`."""
        self._check(index)
        return self._entries.get(index, NO_ADDRESS)

    def entries(self) -> dict[int, bytes]:
        """Return the RoCE addresses that are set, by index."""
        return dict(self._entries)

    def set_entry(self, index: int, address: bytes) -> None:
        """Set a RoCE address, or remove it: then its GID is zero, whatever else is in it.

        Raises `Refused`: BAD_INDEX; BAD_PARAM for a group's MAC address.
        """
        self._check(index)
        gid, mac = ROCE_ADDRESS.get_raw(address, "gid"), ROCE_ADDRESS.get_raw(address, "mac")
        if gid == NO_GID:
            self._entries.pop(index, None)
            self._sources.pop(index, None)
            return
        if mac[0] & 1:
            raise Refused(Status.BAD_PARAM, f"{mac.hex(':')} is no unicast address")
        get = ROCE_ADDRESS.get
        vlan = get(address, "vlan") if get(address, "vlan_valid") else NO_VLAN
        version = 2 if get(address, "version") == ROCE_V2 else 1
        self._entries[index] = address
        self._sources[index] = Source(mac, gid, vlan, version)

    def _check(self, index: int) -> None:
        if index >= ROCE_ADDRESSES:
            raise Refused(Status.BAD_INDEX, f"RoCE address {index}")
