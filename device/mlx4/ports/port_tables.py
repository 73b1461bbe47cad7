"""The tables that SET_PORT programs into a port, and paths that name their entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.device.frames.rules import RuleTable
from bluebridge.device.layout.net.ethernet import NO_VLAN, VLAN_TAG_TYPES
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.rdma.ports.port_tables import Path, Source, Sources
from bluebridge.device.refusal import Reason, Refusal

DEFAULT_MTU: Final = 1500
MAX_GROUP_ADDRESSES: Final = 4096


@dataclass(slots=True)
class Receivers:
    """The QP numbers that Ethernet frames go to without groups and rules; None drops them."""

    unicast: int | None = None
    multicast: int | None = None
    promiscuous: int | None = None


class CardPath(Path):
    """A path that names a VLAN by its place in the table, or has the `tag` itself.

    `vlan_index` is -1 and `tag` is `NO_VLAN` for none. `roce` is the version of RoCE, 0 for that of
    the own GID.
    """

    def __init__(self) -> None:
        super().__init__()
        self.vlan_index = -1
        self.tag = NO_VLAN
        self.roce = 0


class PortTables(Sources):
    """Tables of MAC addresses, VLANs, GIDs and their versions, whose entries contexts name.

    `rules` are those of device-managed flow steering, `receivers` stand in their place without it.
    `burned_in` is the MAC address that stands for empty entries. `link_modes` are those that
    software chose, None until it did; an Ethernet port only stores its `capabilities`.
    """

    def __init__(self, burned_in: bytes) -> None:
        self.burned_in = burned_in
        self.reset()

    def reset(self) -> None:
        self.macs: Sequence[bytes | None] = ()
        self.vlans: Sequence[int | None] = ()
        self.gids: Sequence[bytes] = ()
        self.versions: Sequence[int] = ()
        self.receivers = Receivers()
        self.multicast_filter: set[bytes] = set()
        self.multicast_filter_on = False
        self.vlan_filter = b""
        self.rules = RuleTable()
        self.link_modes: int | None = None
        self.mtu = DEFAULT_MTU
        self.capabilities = 0

    def of(self, path: Path) -> Source:
        """Return the source of a path: each table gives a part of it."""
        vlan, version = NO_VLAN, 0
        if isinstance(path, CardPath):
            vlan, version = self._vlan_of(path), path.roce
        return Source(
            self.mac_of(path.source),
            self.gid(path.gid_index),
            vlan,
            version or self.roce_version(path.gid_index),
        )

    def _vlan_of(self, path: CardPath) -> int:
        if path.vlan_index >= 0:
            vlan = self.vlan(path.vlan_index)
            return NO_VLAN if vlan is None else vlan
        return NO_VLAN if path.tag == NO_VLAN else path.tag & 0xFFF

    @property
    def mac(self) -> bytes:
        return self.mac_of(0)

    def macs_in_use(self) -> frozenset[bytes]:
        return frozenset(mac for mac in self.macs if mac) or frozenset((self.burned_in,))

    def gids_in_use(self) -> frozenset[bytes]:
        return frozenset(gid for gid in self.gids if gid != NO_GID)

    def mac_of(self, index: int) -> bytes:
        """Return source address `index`; the burned-in one for an empty entry."""
        return (self.macs[index] if index < len(self.macs) else None) or self.burned_in

    def vlan(self, index: int) -> int | None:
        """Return VLAN id `index`; None for an empty entry."""
        return self.vlans[index] if index < len(self.vlans) else None

    def gid(self, index: int) -> bytes:
        """Return GID `index`; the first one in use where that entry is empty.

        User-space address handles carry the index of another table than the hardware's.
        """
        if index < len(self.gids) and self.gids[index] != NO_GID:
            return self.gids[index]
        return next((gid for gid in self.gids if gid != NO_GID), NO_GID)

    def roce_version(self, index: int) -> int:
        """Return the RoCE version of GID `index`."""
        return self.versions[index] if index < len(self.versions) else 1

    # -- filters ----------------------------------------------------------------------------

    def filter_multicast(self, address: bytes) -> None:
        """Add a group address or broadcast; raises `Refusal` (LIMIT) when the list is full."""
        wanted = self.multicast_filter
        if len(wanted) >= MAX_GROUP_ADDRESSES and address not in wanted:
            raise Refusal(Reason.LIMIT, f"{MAX_GROUP_ADDRESSES} group addresses")
        wanted.add(address)

    def admits(self, frame: bytes) -> bool:
        """Return True if a frame passes the multicast and the VLAN filter.

        Each passes everything until it is programmed; untagged frames have no VLAN to filter by.
        Linux `en_netdev.c: mlx4_en_do_multicast` lists broadcast, too.
        """
        group = frame[0] & 1 and self.multicast_filter_on
        if group and frame[:6] not in self.multicast_filter:
            return False
        return self.admits_tag(frame)

    def admits_tag(self, frame: bytes) -> bool:
        """Return True if a frame passes the VLAN filter."""
        if not self.vlan_filter or frame[12:14] not in VLAN_TAG_TYPES or len(frame) < 16:
            return True
        vlan = int.from_bytes(frame[14:16], "big") & 0xFFF
        return bool(self.vlan_filter[-1 - vlan // 8] >> vlan % 8 & 1)  # VLAN 0 comes last
