"""The interface of bridge models to the server: PCI shape and the object behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from bluebridge.device.layout.ntb.models import CLASS_BRIDGE, BridgeModel
from bluebridge.device.ntb.fault_points import FaultPoints
from bluebridge.device.ntb.link import BridgeLink
from bluebridge.device.ntb.state import BridgeState
from bluebridge.device.pci.capabilities import Capability
from bluebridge.device.pci.function import ConfigRegister
from bluebridge.device.pci.host import Bridge, MasterBus
from bluebridge.device.pci.identity import Bar, Identity


class Bridging(Bridge, Protocol):
    """One side of a bridge pair, whatever its model; both sides of a pair have the same model."""

    fault_points: FaultPoints

    def join(self, peer: Any) -> None:
        """Connect to the bridge at the other end of the link; called on one side, for both."""

    def state(self) -> BridgeState:
        """Return what the bridge holds now, without changing it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options in which two bridge pairs of the same model can differ."""

    sizes: tuple[int, int]
    """Bytes of both windows."""
    alias: bool = False
    """Whether the wide window always shows the owner's bus from address 0 on."""
    hang: Collection[str] = ()
    """Errata that are played out instead of counted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The PCI properties of a bridge's endpoint; `make` makes the bridge itself."""

    bars: tuple[Bar, ...]
    capabilities: tuple[Capability, ...]
    vectors: int
    make: Callable[[MasterBus, BridgeLink], Bridging]
    registers: tuple[tuple[ConfigRegister, ...], tuple[ConfigRegister, ...]] = ((), ())
    """Extra registers in config space, of the upstream and of the downstream side."""


def identity_of(model: BridgeModel) -> Identity:
    """Return the PCI identity of a bridge of `model`."""
    return Identity(
        model.vendor, model.device, CLASS_BRIDGE, model.vendor, model.subsystem, model.revision
    )
