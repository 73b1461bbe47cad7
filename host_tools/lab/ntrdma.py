"""The configuration that NTRDMA needs of a pair, by the back end that a user names."""

from __future__ import annotations

from dataclasses import replace

from bluebridge.device.layout.ntb.models import DEFAULT, BarSizes
from bluebridge.device.server.bridge_options import BridgeOptions
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig

TCP = "tcp"
"""Besides the back ends through a bridge: over the guests' network, which mlx4_en drives."""
PORT = 18515


def bridge(model: str = DEFAULT.name) -> BridgeOptions:
    """A bridge whose second window shows all memory."""
    return BridgeOptions(model, BarSizes.NTRDMA.value)


def config(base: LabConfig, back_end: str, model: str = DEFAULT.name) -> LabConfig:
    """`base` with the devices that the back end uses, and no others."""
    if back_end == TCP:
        return replace(base, vfio=False, kernel=True)
    return replace(base, hca=False, bridge=bridge(model))


def word(back_end: str, *, serves: bool) -> str:
    """`--backend` of the program in the first guest, which `serves`, or in the second."""
    if back_end != TCP:
        return back_end
    return f"{'s' if serves else 'c'}:{ADDRESSES[0].partition('/')[0]}:{PORT}"
