"""Rows that describe the ports of an HCA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.mlx4.ports.properties import properties, special_base
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from bluebridge.device.rdma.ports.frame_counters import Direction
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from bluebridge.device.rdma.ports.interface_counters import InterfaceCounters
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.show.table import Row

_QUANTITIES = ("frames", "octets", "multicast", "broadcast")


class PortTable:
    """The ports of an HCA, numbered from 1.

    `counters` are the interface counters of its queue pairs.
    """

    def __init__(self, ports: Sequence[Port], counters: InterfaceCounters) -> None:
        self._ports = ports
        self._counters = counters

    def numbers(self) -> Sequence[int]:
        """Return the numbers of all ports."""
        return [port.number for port in self._ports]

    def find(self, number: int) -> int | None:
        """Return `number` if there is a port of that number, else None."""
        return number if number in self.numbers() else None

    def row(self, number: int) -> Row | None:
        """Return link, cable, addresses and counters of a port."""
        port = self._ports[number - 1]
        row = {
            "port": number,
            "link_layer": port.link.name,
            "cable": port.cable,
            "open": port.tables.open,
            "link_up": port.link_up,
            "properties": properties(port),
            **_addresses(port),
            "special_qpn": special_base(port),
            "counters": _frames(port),
            "rdma_counters": self._rdma(),
        }
        return row | _infiniband(port.agent) if isinstance(port, InfinibandPort) else row

    def _rdma(self) -> Row:
        """Return the interface counters that are not zero, by index; all ports share them."""
        counters = ((index, self._counters.of(index)) for index in range(INTERFACE_COUNTERS))
        rows = ((str(index), asdict(counter)) for index, counter in counters)
        return {index: values for index, values in rows if any(values.values())}


def _addresses(port: Port) -> Row:
    tables = port.tables
    return {
        "mac": port.burned_in.hex(":"),
        "macs": {str(index): mac.hex(":") for index, mac in enumerate(tables.macs) if mac},
        "vlans": {str(i): vlan for i, vlan in enumerate(tables.vlans) if vlan is not None},
        "gids": {str(i): gid.hex() for i, gid in enumerate(port.gids) if gid != NO_GID},
        "roce_versions": {
            str(i): tables.roce_version(i) for i, gid in enumerate(port.gids) if gid != NO_GID
        },
        "mtu": tables.mtu,
        "steering": asdict(tables.steering),
    }


def _frames(port: Port) -> Row:
    """Return the counters of Ethernet frames in both directions."""
    counters = port.counters
    row = {**_direction("rx", counters.rx), **_direction("tx", counters.tx)}
    return {**row, "rx_filtered": counters.filtered}


def _direction(name: str, direction: Direction) -> Row:
    row = {f"{name}_{each}": sum(getattr(direction, each)) for each in _QUANTITIES}
    return {**row, f"{name}_dropped": direction.dropped}


def _infiniband(agent: PortAgent) -> Row:
    """Return what the subnet manager set and what performance management counts."""
    gids = (agent.gid(index) for index in range(len(agent.guids)))
    return {
        "port_info": bytes(agent.info).hex(),
        "gids": {str(i): gid.hex() for i, gid in enumerate(gids) if any(gid)},
        "pkeys": {str(i): pkey for i, pkey in enumerate(agent.pkeys) if pkey},
        "counters": asdict(agent.counters),
    }
