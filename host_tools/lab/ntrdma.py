"""The configuration that NTRDMA needs of a pair, by the back end that a user names."""

from __future__ import annotations

from dataclasses import replace

from bluebridge.device.layout.ntb.models import DEFAULT, BarSizes
from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig

TCP = "tcp"
"""The back end over the guests' network, which mlx4_en drives; all others go through a bridge."""
PORT = 18515


def bridge(model: str = DEFAULT.name) -> BridgeOptions:
    """Return the options of a bridge whose second window shows all of the peer's memory."""
    return BridgeOptions(model, BarSizes.NTRDMA.value)


def config(base: LabConfig, back_end: str, model: str = DEFAULT.name) -> LabConfig:
    """Return `base` changed to have the devices that the back end uses, and no others."""
    if back_end == TCP:
        return replace(base, vfio=False, kernel=True)
    return replace(base, hca=False, bridge=bridge(model))


def word(back_end: str, *, serves: bool) -> str:
    """Return `--backend` for the program in the guest that `serves`, or in the other guest."""
    if back_end != TCP:
        return back_end
    return f"{'s' if serves else 'c'}:{ADDRESSES[0].partition('/')[0]}:{PORT}"
