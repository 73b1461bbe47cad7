"""A connection manager for an open device at an IP address, whichever provider it has."""

from __future__ import annotations

import contextlib
import ipaddress

from bluebridge.guest.cm.manager import ConnectionManager
from bluebridge.guest.verbs import Device, VerbsError

PREFIX_LENGTHS = {4: 24, 6: 64}
"""The default prefix lengths of addresses, by the version of IP."""


def open_connections(
    device: Device, ip: str, owned: contextlib.ExitStack, prefix_length: int = 0
) -> ConnectionManager:
    """Open a connection manager for the IP address `ip`; `owned` closes it.

    The prefix says who is a neighbour on Ethernet: that of `PREFIX_LENGTHS` for 0. Raises
    `VerbsError`.
    """
    prefix_length = prefix_length or PREFIX_LENGTHS[ipaddress.ip_address(ip).version]
    # Imported late, since start-up in a guest is slow.
    if device.ethernet_port:
        from bluebridge.guest.cm.gsi import open_cm
        from bluebridge.guest.netif import NetInterface

        net = owned.enter_context(NetInterface(device, ip, prefix_length))
        manager = open_cm(device, ip, net)
    else:
        from bluebridge.guest.ntrdma.connections import open_ntrdma_cm
        from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice

        if not isinstance(device, NtrdmaDevice):
            raise VerbsError(f"{device.name} has no Ethernet port")
        manager = open_ntrdma_cm(device, ip)
    owned.callback(manager.close)
    return manager
