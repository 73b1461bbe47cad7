"""A connection manager for an open device at an IPv4 address, whichever provider it has."""

from __future__ import annotations

import contextlib

from bluebridge.guest.cm.manager import ConnectionManager
from bluebridge.guest.verbs import Device

PREFIX_LENGTH = 24


def open_connections(
    device: Device, ip: str, owned: contextlib.ExitStack, prefix_length: int = PREFIX_LENGTH
) -> ConnectionManager:
    """Manage connections of address `ip` (dotted IPv4); `owned` closes what that takes.

    The prefix says who is a neighbour on Ethernet. Raises `VerbsError`.
    """
    if device.ethernet_port:
        manager = _over_ethernet(device, ip, owned, prefix_length)
    else:
        manager = _by_peer(device, ip)
    owned.callback(manager.close)
    return manager


def _over_ethernet(
    device: Device, ip: str, owned: contextlib.ExitStack, prefix_length: int
) -> ConnectionManager:
    from bluebridge.guest.cm.open import open_cm
    from bluebridge.guest.netif import NetInterface

    return open_cm(device, ip, owned.enter_context(NetInterface(device, ip, prefix_length)))


def _by_peer(device: Device, ip: str) -> ConnectionManager:
    """Over NTRDMA. Imported when it is needed: start-up in a guest is slow."""
    from bluebridge.guest.ntrdma.connections import open_ntrdma_cm
    from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
    from bluebridge.guest.verbs import VerbsError

    if not isinstance(device, NtrdmaDevice):
        raise VerbsError(f"{device.name} has no Ethernet port")
    return open_ntrdma_cm(device, ip)
