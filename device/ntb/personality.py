"""The bridges that exist, by the names users give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from device.ntb import gen4
from device.ntb.gen4 import Gen4Bridge
from device.ntb.link import Link
from device.pci.capabilities import Capability
from device.pci.endpoint import Bar, Identity
from device.pci.host import MasterBus


class Personality(StrEnum):
    """Which driver finds its hardware."""

    INTEL_GEN4 = "intel-gen4"


class BarSizes(StrEnum):
    """How much a window can show: 1 MiB each, or 4 GiB in the second one as NTRDMA wants."""

    SMALL = "small"
    NTRDMA = "ntrdma"


SIZES = {BarSizes.SMALL: gen4.SMALL, BarSizes.NTRDMA: gen4.WIDE}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a personality needs of its endpoint, and how its models are made."""

    identity: Identity
    bars: tuple[Bar, ...]
    capabilities: tuple[Capability, ...]
    vectors: int
    log_suffix: str
    engine_version: int
    """The DMA engine of the same platform."""
    make: Callable[[MasterBus, Link], Gen4Bridge]


def shape(personality: Personality, sizes: BarSizes = BarSizes.SMALL) -> Shape:
    """The shape of both bridges of a pair."""
    windows = SIZES[sizes]
    return Shape(
        gen4.IDENTITY,
        gen4.bars(windows),
        gen4.capabilities(),
        gen4.VECTORS,
        gen4.LOG_SUFFIX,
        0x34,
        lambda bus, link: Gen4Bridge(bus, link, windows),
    )
