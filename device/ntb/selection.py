"""Selects the code that emulates a bridge model."""

from __future__ import annotations

from collections.abc import Callable, Collection

from bluebridge.device.layout.ntb.models import (
    ALIASING,
    GEN1,
    GEN4,
    HANGING,
    SWITCHTEC,
    WINDOW_BYTES,
    BarSizes,
    BridgeModel,
    names,
)
from bluebridge.device.ntb import gen1, gen4, switchtec
from bluebridge.device.ntb.shape import Shape, Wanted

_SHAPES: dict[BridgeModel, Callable[[Wanted], Shape]] = {
    GEN4: gen4.shape,
    GEN1: gen1.shape,
    SWITCHTEC: switchtec.shape,
}


def shape_of(
    model: BridgeModel,
    sizes: BarSizes = BarSizes.SMALL,
    alias: bool = False,
    hang: Collection[str] = (),
) -> Shape:
    """Return the shape of both bridges of a pair.

    With `alias` the wide window always shows the peer's bus from address 0 on; the errata of `hang`
    hang the bridge. Raises `ValueError` where the model or the sizes do not allow it.
    """
    if not set(hang) <= set(model.errata):
        raise ValueError(f"--hang-on wants --ntb-model {names(HANGING)}, which has the errata")
    if alias and not (model.window_alias and sizes is BarSizes.NTRDMA):
        raise ValueError(
            f"--window-alias wants --ntb-model {names(ALIASING)} and --bar-sizes {BarSizes.NTRDMA}"
        )
    return _SHAPES[model](Wanted(WINDOW_BYTES[sizes], alias, hang))
