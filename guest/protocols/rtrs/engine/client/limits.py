"""Sizes of a client's queue pairs."""

from __future__ import annotations

from bluebridge.device.layout.net.rtrs import SERVICE_QUEUE_DEPTH
from bluebridge.guest.protocols.rtrs.engine.actions import Limits


def limits(cid: int, queue_depth: int, most: int) -> Limits:
    """As the kernel's client has them; `most` is what the device can have.

    Connection 0: a request and a registration for each, 2 for draining and heartbeats. Others:
    request, registration and end of a key; two receives for each answer.
    """
    if not cid:
        size = min(most, SERVICE_QUEUE_DEPTH * 2 + 2)
        return Limits(size, size, 2)
    return Limits(min(most, queue_depth * 4 + 1), min(most, queue_depth * 3 + 1), 2)
