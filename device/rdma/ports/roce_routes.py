"""The routes of RoCE messages, from paths that name addresses by their index in port tables."""

from __future__ import annotations

from bluebridge.device.fabric.messages import Route
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.rdma.ports.path import Path
from bluebridge.device.rdma.ports.port_tables import Tables


def of_tag(tag: int) -> tuple[int, int]:
    """Return VLAN and service level of a tag; without a tag, the service level is 0."""
    return (NO_VLAN, 0) if tag == NO_VLAN else (tag & 0xFFF, tag >> 13)


def connected_route(tables: Tables, path: Path) -> Route:
    """Return the route of a connection with this `path`."""
    vid = tables.vlan(path.vlan_index) if path.vlan_index >= 0 else None
    return _route(tables, path, NO_VLAN if vid is None else path.priority << 13 | vid, path.roce)


def datagram_route(tables: Tables, path: Path) -> Route:
    """Return the route of a datagram; the own GID determines the RoCE version."""
    return _route(tables, path, path.tag, tables.roce_version(path.gid_index))


def _route(tables: Tables, path: Path, tag: int, roce: int) -> Route:
    vlan, level = of_tag(tag)
    return Route(
        smac=tables.mac(path.source),
        dmac=path.mac,
        sgid=tables.gid(path.gid_index),
        dgid=path.gid,
        vlan=vlan,
        traffic_class=path.traffic_class,
        hop_limit=path.hop_limit,
        service_level=level,
        flow_label=path.flow_label,
        roce=roce,
    )
