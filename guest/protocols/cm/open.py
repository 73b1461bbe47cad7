"""A connection manager for an opened device on Ethernet."""

from __future__ import annotations

import ipaddress

from bluebridge.device.layout.net.roce import ip_gid
from bluebridge.guest.protocols.cm.gsi import GsiTransport
from bluebridge.guest.protocols.cm.manager import ConnectionManager
from bluebridge.guest.protocols.cm.qp import roce_path_qp
from bluebridge.guest.protocols.cm.transport import LocalPort, Resolver
from bluebridge.guest.verbs import Device, VerbsError


def open_cm(device: Device, ip: str, resolver: Resolver) -> ConnectionManager:
    """Take queue pair 1 of `device` and manage connections of the IP address `ip`.

    Adds the address's GID to the port when it is not there yet. Raises `VerbsError`.
    """
    port = roce_port(device, ip)
    transport = GsiTransport(device, port.gid_index)
    return ConnectionManager(port, transport, resolver, roce_path_qp)


def roce_port(device: Device, ip: str) -> LocalPort:
    """Return the port of `device` with the address `ip` and its GID, which is added if need be."""
    port = device.ethernet_port
    if port is None:
        raise VerbsError(f"{device.name} has no Ethernet port")
    gid = ip_gid(ipaddress.ip_address(ip).packed)
    return LocalPort(ip, port.mac, gid, port.add_gid(gid), device.query_device().node_guid)
