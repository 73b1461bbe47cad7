"""Ports of UDP that nobody has."""

from __future__ import annotations

import socket

from bluebridge.device.underlay.tunnel import Endpoint


def free_ports(count: int) -> list[Endpoint]:
    """Return `count` addresses of this machine that may be bound."""
    taken = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in taken:
        each.bind(("127.0.0.1", 0))
    found = [Endpoint(*each.getsockname()) for each in taken]
    for each in taken:
        each.close()
    return found
