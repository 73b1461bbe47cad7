"""Common to bridges of all models: the interface to the server, the link of a pair."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from bluebridge.device.layout.ntb.models import CLASS_BRIDGE, BridgeModel
from bluebridge.device.ntb.window import Window
from bluebridge.device.pci.bus import Timer
from bluebridge.device.pci.config_space import Bar, Capability, Identity
from bluebridge.device.pci.fault_point import FaultPoint
from bluebridge.device.pci.function import ConfigRegister
from bluebridge.device.pci.host import Bridge, MasterBus
from bluebridge.device.pci.registers import RegisterFile

TRAINING_SECONDS = 0.5
"""Seconds for which the link trains before it is up.

ntb_transport queues a clean-up of all scratchpads at the end of its probe if the link is down then
(ntb_transport_probe, ntb_transport_event_callback). A link that came up at once would race with it,
and what the peer had written would be lost. On a busy host the work may be late.
"""
HOLD_SECONDS = 0.2
"""Seconds for which doorbells wait after a side has first read that the link is up.

ntb_perf takes a doorbell that comes before its own link event for one of a link that is down, and
its peer waits for an answer for ever. A side that looks is still in the interrupt's handler, and
its processor may have to wait for one of the host before it goes on.
"""


class Side(Protocol):
    """One bridge at an end of a `BridgeLink`."""

    def link_changed(self, up: bool) -> None:
        """Called when the link came up or went down."""

    def ring(self, bits: int) -> None:
        """Set doorbells that the peer rang; `bits` are those of the doorbell register."""


class BridgeLink:
    """A link of two sides that is up while both are ready, after it has trained.

    It goes down at once.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        training: float = TRAINING_SECONDS,
    ) -> None:
        self._call_later = call_later
        self._training = training
        self._sides: list[Side] = []
        self._ready = [False, False]
        self._informed = [False, False]
        self._held = [0, 0]
        self._timer: Timer | None = None
        self._releases: list[Timer | None] = [None, None]
        self.up = False
        self.lost = 0
        """Number of rings while the link was down."""

    def connect(self, side: Side) -> int:
        """Connect a side and return its number, 0 or 1. Raises `ValueError` for a third one."""
        if len(self._sides) == 2:
            raise ValueError("a link has two sides")
        self._sides.append(side)
        return len(self._sides) - 1

    def ready(self, number: int, ready: bool) -> None:
        """Note whether side `number` wants the link up; it trains once both sides do."""
        self._ready[number] = ready
        if not all(self._ready):
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._change(False)
        elif not self.up and self._timer is None:
            self._timer = self._call_later(self._training, self._trained)

    def _trained(self) -> None:
        self._timer = None
        self._change(all(self._ready))

    def _change(self, up: bool) -> None:
        if up == self.up:
            return
        self.up = up
        # Whoever has not read the new status would take a ring for one of the old link.
        for number in range(2):
            self._forget(number)
        for side in self._sides:
            side.link_changed(up)

    def _forget(self, number: int) -> None:
        self._informed[number], self._held[number] = False, 0
        timer, self._releases[number] = self._releases[number], None
        if timer is not None:
            timer.cancel()

    def status_read(self, number: int) -> None:
        """Note that side `number` has read its link status.

        Doorbells for that side are let through `HOLD_SECONDS` later.
        """
        if self.up and not self._informed[number] and self._releases[number] is None:
            self._releases[number] = self._call_later(HOLD_SECONDS, lambda: self._release(number))

    def _release(self, number: int) -> None:
        self._releases[number] = None
        self._informed[number] = True
        bits, self._held[number] = self._held[number], 0
        if bits:
            self._sides[number].ring(bits)

    def ring_peer(self, number: int, bits: int) -> None:
        """Ring the peer of side `number`.

        The bits are held until the peer has read its link status, and lost while the link is down.
        """
        peer = 1 - number
        if not self.up:
            self.lost += 1
        elif self._informed[peer]:
            self._sides[peer].ring(bits)
        else:
            # Doorbells are bits of a register: two rings before the peer looks are one.
            self._held[peer] |= bits


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
    ones in `registers`. `loss` decides of each ring of the peer whether it gets lost.
    """

    registers: RegisterFile
    windows: Callable[[], Iterable[Window]]
    scratchpads: range = range(0)
    loss: FaultPoint[bool] = field(default_factory=FaultPoint)

    def loses(self) -> bool:
        """Return True if a ring of the peer gets lost."""
        return self.loss.decide is not None and self.loss.decide()


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
