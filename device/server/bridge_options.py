"""Options of the device server that say how its bridge is, each in one place.

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
    """The options for a server's bridge, and for how its DMA engines take a closed window.

    Which options go together is not checked here: the server refuses what does not when it starts.
    """

    ntb_model: str = option(
        DEFAULT.name,
        f"which bridge (default {DEFAULT.name})",
        choices=tuple(BY_NAME),
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
        """The row of `ntb_model`; raises `KeyError` for a name that has none."""
        return BY_NAME[self.ntb_model]


DEFAULTS = BridgeOptions()
"""The bridge of a server that is told nothing but to have one."""
