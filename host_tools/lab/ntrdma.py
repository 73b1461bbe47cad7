"""The configuration that NTRDMA needs of a pair, by the back end that a user names."""

from __future__ import annotations

import socket
from dataclasses import replace

from bluebridge.device.layout.ntb.models import DEFAULT, BarSizes
from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig

TCP = "tcp"
"""The back end over the guests' network, which mlx4_en drives; all others go through a bridge."""
_PLACE = f"{ADDRESSES[0].partition('/')[0]}:18515"
"""Where the first guest of a pair serves."""


def bridge(model: str = DEFAULT.name) -> BridgeOptions:
    """Return the options of a bridge whose second window shows all of the peer's memory."""
    return BridgeOptions(model, BarSizes.NTRDMA.value)


def config(base: LabConfig, back_end: str, model: str = DEFAULT.name) -> LabConfig:
    """Return `base` changed to have the devices that the back end uses, and no others.

    Raises `UsageError` for TCP between a host and a guest.
    """
    if back_end == TCP:
        base.check_hosts()
        if base.hosts and base.guests:
            raise UsageError("no network joins a host and a guest", "--host a,b, or no --host")
        return replace(base, hca=not base.hosts, vfio=False, kernel=True)
    return replace(base, hca=False, bridge=bridge(model))


def word(back_end: str, *, serves: bool, place: str = _PLACE) -> str:
    """Return `--backend` for the program of the side that `serves`, or of the other side."""
    if back_end != TCP:
        return back_end
    return f"{'s' if serves else 'c'}:{place}"


def words(back_end: str, config: LabConfig) -> tuple[str, str]:
    """Return `--backend` for the first side of a pair, which serves, and for the second."""
    place = _PLACE
    if config.hosts and back_end == TCP:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = f"127.0.0.1:{listener.getsockname()[1]}"
    first, second = (word(back_end, serves=serves, place=place) for serves in (True, False))
    return first, second
