"""Makers of adapters by card, and the interface that the server uses of each adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bluebridge.device import cards
from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.mlx4 import device as mlx4
from bluebridge.device.mlx4.board.product import product_of
from bluebridge.device.mlx4.settings.config import Features, HcaConfig
from bluebridge.device.mlx5 import device as mlx5
from bluebridge.device.mlx5.settings.config import Config
from bluebridge.device.pci.bus import HostBus, Model
from bluebridge.device.pci.config_space import (
    Bar,
    Capability,
    Identity,
    LiveWord,
    Product,
    capabilities,
    inert_vendor_capability,
)
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.server.settings import HcaSpec
from bluebridge.device.show import Tables, hca_tables
from bluebridge.device.show_mlx5 import adapter_tables

CONNECTX3: Final = Identity(
    layout.VENDOR_MELLANOX,
    layout.DEVICE_CONNECTX3,
    layout.CLASS_ETHERNET,
    layout.VENDOR_MELLANOX,
    layout.SUBSYSTEM_CONNECTX3,
)
CONNECTX5: Final = Identity(
    layout.VENDOR_MELLANOX,
    layout.DEVICE_CONNECTX5,
    layout.CLASS_ETHERNET,
    layout.VENDOR_MELLANOX,
    layout.SUBSYSTEM_CONNECTX5,
)
_CLASSES: Final = {
    LinkLayer.ETHERNET: layout.CLASS_ETHERNET,
    LinkLayer.INFINIBAND: layout.CLASS_INFINIBAND,
}
CONNECTX3_BARS: Final = (
    Bar(0, bar0.BAR0_SIZE),
    Bar(2, uar.BAR2_SIZE, prefetchable=True, lines=uar.UAR_AREA_SIZE),
)
CONNECTX5_BARS: Final = (Bar(0, init_segment.BAR0_SIZE, prefetchable=True),)
_WITH_BLUEFLAME: Final = (replace(CONNECTX5_BARS[0], lines=init_segment.UAR_AREA),)


class Adapter(Model, Protocol):
    """One adapter of any card, as the server and its control socket have it."""

    @property
    def ports(self) -> Sequence[Port]:
        """Its ports, in the order of their numbers."""

    @property
    def faults(self) -> ArmedFaults:
        """The faults by name that are armed."""

    @property
    def failed(self) -> bool:
        """True after an internal error stopped it, until a reset."""

    @property
    def initialised(self) -> bool:
        """Whether a driver has it in use."""

    def fail(self, reason: str) -> None:
        """Stop it at once with an internal error."""


@dataclass(frozen=True)
class Shape:
    """An adapter's PCI side: identity, BARs, chain of capabilities, MSI-X vectors, product data."""

    identity: Identity
    bars: tuple[Bar, ...]
    chain: tuple[Capability, ...]
    vectors: int
    product: Product | None = None


@dataclass(frozen=True)
class Making:
    """The functions that make one card's adapters and answer questions about them."""

    shape: Callable[[HcaSpec, Features], Shape]
    make: Callable[[HcaSpec, Features, NetworkSettings, HostBus, Sequence[Fabric]], Adapter]
    tables: Callable[[Adapter, Endpoint], Tables]
    """Returns what `show` answers about it."""
    words: Callable[[Adapter], Mapping[int, LiveWord]] = lambda adapter: {}
    """Returns registers of configuration space that do something, by offset."""


def _config3(spec: HcaSpec, features: Features, network: NetworkSettings) -> HcaConfig:
    return HcaConfig(spec.name, spec.mac, spec.link, features, network)


def _shape3(spec: HcaSpec, features: Features) -> Shape:
    config = HcaConfig(spec.name, spec.mac, spec.link, features)
    identity = replace(CONNECTX3, device=config.device_id, class_code=_CLASSES[spec.link])
    vectors = bar0.MSIX_VECTORS
    chain = capabilities(vectors, bar0.MSIX_TABLE_OFFSET, bar0.MSIX_PBA_OFFSET)
    return Shape(identity, CONNECTX3_BARS, chain, vectors, product_of(config))


def _make3(
    spec: HcaSpec,
    features: Features,
    network: NetworkSettings,
    bus: HostBus,
    fabrics: Sequence[Fabric],
) -> Adapter:
    return mlx4.Hca(bus, fabrics, _config3(spec, features, network))


def _tables3(adapter: Adapter, endpoint: Endpoint) -> Tables:
    assert isinstance(adapter, mlx4.Hca), "the row of another card"
    return hca_tables(adapter, endpoint)


def _words3(adapter: Adapter) -> Mapping[int, LiveWord]:
    assert isinstance(adapter, mlx4.Hca), "the row of another card"
    return {layout.GATEWAY_DATA: mlx4.Gateway(adapter)}


def _shape5(spec: HcaSpec, features: Features) -> Shape:
    vectors = init_segment.MSIX_VECTORS
    chain = capabilities(vectors, init_segment.MSIX_TABLE_OFFSET, init_segment.MSIX_PBA_OFFSET)
    bars = _WITH_BLUEFLAME if features.blueflame else CONNECTX5_BARS
    return Shape(CONNECTX5, bars, (*chain, inert_vendor_capability()), vectors)


def _make5(
    spec: HcaSpec,
    features: Features,
    network: NetworkSettings,
    bus: HostBus,
    fabrics: Sequence[Fabric],
) -> Adapter:
    return mlx5.Hca(bus, fabrics, Config(spec.name, spec.mac, network, features.blueflame))


def _tables5(adapter: Adapter, endpoint: Endpoint) -> Tables:
    assert isinstance(adapter, mlx5.Hca), "the row of another card"
    return adapter_tables(adapter, endpoint)


MAKINGS: Final = {
    cards.CONNECTX3.name: Making(_shape3, _make3, _tables3, _words3),
    cards.CONNECTX5.name: Making(_shape5, _make5, _tables5),
}
"""The maker of each card's adapters, by the card's name."""
