"""A connection manager for an opened HCA."""

from __future__ import annotations

import ipaddress

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.guest.cm.gsi import GsiTransport
from bluebridge.guest.cm.manager import ConnectionManager, LocalPort, Resolver
from bluebridge.guest.verbs import Context


def open_cm(context: Context, ip: str, resolver: Resolver) -> ConnectionManager:
    """Take queue pair 1 of `context` and manage connections of address `ip` (dotted IPv4).

    Adds the address's IPv4-mapped GID to the port when it is not there yet.
    """
    gid = ipv4_gid(ipaddress.IPv4Address(ip).packed)
    index = context.gids.index(gid) if gid in context.gids else context.add_gid(gid)
    guid = context.query_device().node_guid
    port = LocalPort(ip, context.mac, gid, index, guid)
    return ConnectionManager(port, GsiTransport(context, index), resolver)
