"""What one bridge model is to the server: its endpoint, and how the object behind it is made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from bluebridge.device.layout.ntb.models import CLASS_BRIDGE, BridgeModel
from bluebridge.device.ntb.link import BridgeLink
from bluebridge.device.ntb.state import BridgeState
from bluebridge.device.pci.capabilities import Capability
from bluebridge.device.pci.function import ConfigRegister
from bluebridge.device.pci.host import Bridge, MasterBus
from bluebridge.device.pci.identity import Bar, Identity


class Bridging(Bridge, Protocol):
    """One side, whatever its model; both sides of a pair have the same."""

    def join(self, peer: Any) -> None:
        """Connect to the bridge at the other end of the link; called on one side, for both."""

    def state(self) -> BridgeState:
        """What the bridge holds now; nothing changes by it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What differs between two pairs of the same model."""

    sizes: tuple[int, int]
    """Bytes of both windows."""
    alias: bool = False
    """The wide window shows the owner's bus from address 0 on, always."""
    hang: Collection[str] = ()
    """Errata that are played out instead of counted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a bridge needs of its endpoint; `make` makes the object behind it."""

    bars: tuple[Bar, ...]
    capabilities: tuple[Capability, ...]
    vectors: int
    make: Callable[[MasterBus, BridgeLink], Bridging]
    registers: tuple[tuple[ConfigRegister, ...], tuple[ConfigRegister, ...]] = ((), ())
    """In config space, of the upstream and of the downstream side."""


def identity_of(model: BridgeModel) -> Identity:
    """What `lspci` says of a bridge."""
    return Identity(
        model.vendor, model.device, CLASS_BRIDGE, model.vendor, model.subsystem, model.revision
    )
