"""Options of the device server for its bridge, each declared in one place.

A field of `BridgeOptions` is an option of `python -m bluebridge.device`, see
`bluebridge.device.server.option_table`.
"""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.layout.ntb.models import (
    ALIASING,
    BY_NAME,
    DEFAULT,
    HANGING,
    BarSizes,
    BridgeModel,
    names,
)
from bluebridge.device.server.option_table import option


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """The options for a server's bridge and for how DMA engines treat a closed window.

    Combinations of options are not checked here: the server refuses wrong ones when it starts.
    """

    ntb_model: str = option(
        DEFAULT.name, f"which bridge (default {DEFAULT.name})", choices=tuple(BY_NAME)
    )
    bar_sizes: str = option(
        BarSizes.SMALL.value,
        "the bridge's windows: 1 MiB each (small, default), or 4 GiB for the second (ntrdma)",
        choices=tuple(each.value for each in BarSizes),
    )
    window_alias: bool = option(
        False,
        f"the second window of {names(ALIASING)}, of 4 GiB (--bar-sizes {BarSizes.NTRDMA}), is the "
        "peer's memory itself, at the same addresses: processors store there at the speed of "
        "memory, it never closes, and the peer's QEMU is handed the file of all that memory",
    )
    hang_on: tuple[str, ...] = option(
        (),
        f"play an erratum of {names(HANGING)} out instead of counting it: the "
        "bridge answers nothing any more until it is reset",
        choices=tuple(erratum for model in HANGING for erratum in model.errata),
    )
    strict_windows: bool = option(
        False, "a DMA copy into a closed window is an error, where hardware notices nothing"
    )

    @property
    def model(self) -> BridgeModel:
        """The bridge model named by `ntb_model`; raises `KeyError` for an unknown name."""
        return BY_NAME[self.ntb_model]


BRIDGE_DEFAULTS = BridgeOptions()
"""The options of a bridge for which the command line sets none."""
