"""What software programs into a port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bluebridge.device.hca.ethernet.steering import Steering
from bluebridge.device.hca.ports.frame_counters import EthCounters
from bluebridge.device.layout.mlx4.capabilities import (
    GID_TABLE_ENTRIES,
    MAC_TABLE_ENTRIES,
    VLAN_TABLE_ENTRIES,
)
from bluebridge.device.layout.mlx4.ports import LinkMode

NO_GID = bytes(16)
DEFAULT_MTU = 1500


LINK_MODES = int(LinkMode.CR4_40G | LinkMode.CR_10G)


@dataclass(slots=True)
class Tables:
    """Everything a reset or CLOSE_HCA forgets about a port."""

    open: bool = False
    macs: list[bytes | None] = field(default_factory=lambda: [None] * MAC_TABLE_ENTRIES)
    vlans: list[int | None] = field(default_factory=lambda: [None] * VLAN_TABLE_ENTRIES)
    gids: list[bytes] = field(default_factory=lambda: [NO_GID] * GID_TABLE_ENTRIES)
    versions: Sequence[int] = ()
    steering: Steering = field(default_factory=Steering)
    multicast_filter: set[bytes] = field(default_factory=set)
    multicast_filter_on: bool = False
    link_modes: int = LINK_MODES
    vlan_filter: bytes = b""
    special_qpn_base: int = 0
    mtu: int = DEFAULT_MTU
    capabilities: int = 0
    counters: EthCounters = field(default_factory=EthCounters)
