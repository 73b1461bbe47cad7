"""A node of the subnet: its identity (NodeInfo) and its ports."""

from __future__ import annotations

from dataclasses import dataclass, field

from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.ib.smp import SWITCH_INFO
from bluebridge.device.layout.net.mad import NODE_INFO

CHANNEL_ADAPTER, SWITCH = 1, 2
VENDOR_MELLANOX = 0x0002C9
DESCRIPTION_SIZE = 64


@dataclass
class Node:
    """A channel adapter, whose ports count from 1, or a switch, whose port 0 is its own.

    `forwarding` and `multicast` are a switch's tables: egress port by LID, mask of egress ports
    by group LID.
    """

    kind: int
    guid: int
    device_id: int
    ports: dict[int, PortAgent]
    description: bytes = b""
    switch_info: bytearray = field(default_factory=SWITCH_INFO.pack)
    forwarding: dict[int, int] = field(default_factory=dict)
    multicast: dict[int, int] = field(default_factory=dict)

    @property
    def is_switch(self) -> bool:
        """True for a switch, which packets pass through."""
        return self.kind == SWITCH

    def info(self, port: int) -> bytes:
        """Return the NodeInfo that answers a request through `port`."""
        own = self.ports[0] if self.is_switch else self.ports[port]
        return bytes(
            NODE_INFO.pack(
                base_version=1,
                class_version=1,
                node_type=self.kind,
                ports=len(self.ports) - self.is_switch,
                system_image_guid=self.guid,
                node_guid=self.guid,
                port_guid=own.guid,
                partition_cap=len(own.pkeys),
                device_id=self.device_id,
                local_port=port,
                vendor_id=VENDOR_MELLANOX,
            )
        )

    def described(self) -> bytes:
        """Return the NodeDescription."""
        return self.description[:DESCRIPTION_SIZE].ljust(DESCRIPTION_SIZE, b"\0")
