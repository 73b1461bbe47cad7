"""The interface of bridge models to the server: PCI shape, the object behind it, what it shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from bluebridge.device.layout.ntb.models import CLASS_BRIDGE, BridgeModel
from bluebridge.device.ntb.link import BridgeLink
from bluebridge.device.ntb.window import Window
from bluebridge.device.pci.config_space import Bar, Capability, Identity
from bluebridge.device.pci.function import ConfigRegister
from bluebridge.device.pci.host import Bridge, MasterBus
from bluebridge.device.pci.registers import RegisterFile


class WindowState(NamedTuple):
    """One window onto this guest's memory: the peer's BAR `bar`, or look-up window `lut` in it.

    It shows `length` bytes from address `base` of this guest on; a closed window has length 0.
    `closed` counts the peer's accesses while it was closed, `aborts` those to addresses where
    nothing answers.
    """

    bar: int
    lut: int | None
    base: int
    length: int
    closed: int
    aborts: int


class BridgeState(NamedTuple):
    """The state of one side of a bridge pair.

    `link` is None where software keeps the link state; `wanted` says whether this side's driver
    wants the link. `lines` are lines of 64 bytes of registers by offset, without those that are all
    zero. `lost` counts rings while the link was down. `hung` says whether an erratum locked the
    bridge up.
    """

    link: bool | None
    windows: Sequence[WindowState]
    lines: Mapping[int, bytes]
    lost: int = 0
    hung: bool = False
    wanted: bool | None = None
    partition: int | None = None


def window_state(bar: int, window: Window, lut: int | None = None) -> WindowState:
    """Return the present state of a window."""
    counts = window.counts
    return WindowState(
        bar, lut, window.base, window.length, counts.get("closed", 0), counts.get("aborts", 0)
    )


@dataclass(slots=True)
class FaultPoints:
    """The places of one side of a bridge pair.

    `windows` returns the windows onto its guest's memory, `scratchpads` are the offsets of its own
    ones in `registers`. `loses_ring` tells of each ring of the peer whether it gets lost.
    """

    registers: RegisterFile
    windows: Callable[[], Iterable[Window]]
    scratchpads: range = range(0)
    loses_ring: Callable[[], bool] | None = None

    def loses(self) -> bool:
        """Return True if a ring of the peer gets lost."""
        return self.loses_ring is not None and self.loses_ring()


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
