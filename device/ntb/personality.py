"""The bridges that exist, by the names users give them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from bluebridge.device.ntb import gen1, gen4, switchtec
from bluebridge.device.ntb.gen1 import Gen1Bridge
from bluebridge.device.ntb.gen4 import Gen4Bridge
from bluebridge.device.ntb.link import Link
from bluebridge.device.ntb.switchtec import SwitchtecBridge
from bluebridge.device.pci.bus import Model
from bluebridge.device.pci.capabilities import Capability
from bluebridge.device.pci.function import ConfigRegister
from bluebridge.device.pci.host import MasterBus
from bluebridge.device.pci.identity import Bar, Identity


class Personality(StrEnum):
    """Which driver finds its hardware."""

    INTEL_GEN4 = "intel-gen4"
    INTEL_GEN1 = "intel-gen1"
    SWITCHTEC = "switchtec"


class BarSizes(StrEnum):
    """How much a window can show: 1 MiB each, or 4 GiB in the second one as NTRDMA wants."""

    SMALL = "small"
    NTRDMA = "ntrdma"


SIZES = {BarSizes.SMALL: gen4.SMALL, BarSizes.NTRDMA: gen4.WIDE}


class Bridging(Model, Protocol):
    """One side, whatever its personality; both sides of a pair have the same."""

    def join(self, peer: Any) -> None:
        """The bridge at the other end of the link; both are told."""


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
    make: Callable[[MasterBus, Link], Bridging]
    registers: tuple[tuple[ConfigRegister, ...], tuple[ConfigRegister, ...]] = ((), ())
    """In config space, of the upstream and of the downstream side."""


def shape(
    personality: Personality,
    sizes: BarSizes = BarSizes.SMALL,
    alias: bool = False,
    hang: Collection[str] = (),
) -> Shape:
    """The shape of both bridges of a pair.

    With `alias` the wide window never moves, with `hang` these errata are played out. Raises
    `ValueError` where that cannot be.
    """
    if hang and personality is not Personality.INTEL_GEN1:
        raise ValueError("--hang-on wants --ntb-model intel-gen1, which has the errata")
    windows = SIZES[sizes]
    if alias and (personality is not Personality.INTEL_GEN4 or sizes is not BarSizes.NTRDMA):
        raise ValueError("--window-alias wants --ntb-model intel-gen4 and --bar-sizes ntrdma")
    static = frozenset({gen4.WIDE_BAR} if alias else ())
    if personality is Personality.INTEL_GEN1:
        return Shape(
            gen1.IDENTITY,
            gen1.bars(windows),
            gen1.capabilities(),
            gen1.VECTORS,
            gen1.LOG_SUFFIX,
            0x32,
            lambda bus, link: Gen1Bridge(bus, link, hang),
            (gen1.config_registers(windows, False), gen1.config_registers(windows, True)),
        )
    if personality is Personality.SWITCHTEC:
        return Shape(
            switchtec.IDENTITY,
            switchtec.bars(windows),
            switchtec.capabilities(),
            switchtec.VECTORS,
            switchtec.LOG_SUFFIX,
            0x34,
            SwitchtecBridge,
        )
    return Shape(
        gen4.IDENTITY,
        gen4.bars(windows),
        gen4.capabilities(),
        gen4.VECTORS,
        gen4.LOG_SUFFIX,
        0x34,
        lambda bus, link: Gen4Bridge(bus, link, windows, static),
    )
