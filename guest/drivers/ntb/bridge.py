"""A non-transparent bridge as its driver sees it, whatever its generation."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.guest.bus.interface import RESET_SECONDS, DmaMemory, Function
from bluebridge.guest.bus.vectors import Deadline, Vectors
from bluebridge.guest.drivers.ntb.window import NtbError, NtbTimeout, Program, Window
from bluebridge.guest.errors import DeviceError

_SPEEDS = {1: "2.5 GT/s", 2: "5 GT/s", 3: "8 GT/s", 4: "16 GT/s", 5: "32 GT/s"}
LINK_WIDTH_SHIFT, LINK_WIDTH_MASK, LINK_SPEED_MASK = 4, 0x3F, 0xF
LINK_ACTIVE = 1 << 13
"""The bit of PCI Express's link status for an active data link; lanes and speed are in others."""
ALL_ONES = 0xFFFF
ENABLED = 0x154
"""The control register's snoop attributes that Linux sets while the link is requested, and that a
reset clears (intel_ntb4_link_enable, xeon_link_enable).
"""
_NO_ANSWER = 0xFFFFFFFF
_LOOKS = 256
"""The number of polls for interrupts between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of the link: up or down, its lanes, and its speed in words."""

    up: bool
    width: int = 0
    speed: str = ""

    @classmethod
    def of(cls, status: int) -> LinkState:
        """Decode a link status register; raises `DeviceError` when it reads all ones."""
        if status == ALL_ONES:
            raise DeviceError("the bridge is gone (reads return all ones)")
        if not status & LINK_ACTIVE:
            return cls(False)
        width = status >> LINK_WIDTH_SHIFT & LINK_WIDTH_MASK
        return cls(True, width, _SPEEDS.get(status & LINK_SPEED_MASK, "an unknown speed"))

    def __str__(self) -> str:
        return f"up, {self.speed} x{self.width}" if self.up else "down"


class Bridge(ABC):
    """One side of a pair of bridges: link, scratchpads, doorbells, windows.

    Doorbells are numbered bits. Like in Linux all of them start masked: one that rings meanwhile
    stays pending and interrupts when it is unmasked. `windows` are counted from 0 on both sides.
    """

    doorbells: int
    """The number of doorbells that the peer has."""
    spads: int
    _control_at: int
    """The offset in BAR0 of the control register."""
    _spads_at: int
    """The offset in BAR0 where the scratchpads begin; the peer's begin at `_peer_spads_at`."""
    _peer_spads_at: int
    port: int
    """The port number of this side: 0 upstream, 1 downstream."""
    windows: tuple[Window, ...]

    def __init__(self, function: Function, model: BridgeModel, vectors: int) -> None:
        self.function = function
        self.name = model.name
        self.vectors = Vectors(function.enable_interrupts(vectors))
        self.every_doorbell = (1 << self.doorbells) - 1
        """The bits of all doorbells."""
        self._masked = self.every_doorbell
        self._vectors_of: dict[int, tuple[int, ...]] = {}

    @property
    def peer_port(self) -> int:
        """The port number of the other side: 0 upstream, 1 downstream."""
        return 1 - self.port

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate contiguous zeroed memory that windows can show and DMA engines can reach."""
        return self.function.allocate(length, align)

    @abstractmethod
    def _program(self) -> None:
        """Program every register but those of windows, link and doorbells' masks."""

    @abstractmethod
    def _programmer(self, number: int, bar: int) -> Program:
        """Return the call that sets the translation of window `number`, which is in BAR `bar`."""

    def _begin(self, bars: Sequence[int], align: int = 0) -> None:
        """Make the windows, all closed, and mask all doorbells.

        Their translations are multiples of `align` bytes, for 0 of the window's size.
        """
        self.windows = tuple(
            Window(
                self.function,
                number,
                bar,
                align or self.function.bar(bar)[1],
                self._programmer(number, bar),
            )
            for number, bar in enumerate(bars)
        )
        for window in self.windows:
            window.clear_translation()
        self._set_mask(self.every_doorbell)

    def restore(self) -> bool:
        """Program the bridge anew if a reset has emptied it since `enable_link`.

        Returns True if so: the windows are closed then, the link trains. Waits while the bridge is
        being reset; raises `DeviceError` when it does not answer any more.
        """
        deadline = Deadline(RESET_SECONDS)
        was_reset = False
        while (control := self.function.load(0, self._control_at, 4)) != ENABLED:
            if deadline.over:
                reason = "reads return all ones" if control == _NO_ANSWER else "it takes no value"
                raise DeviceError(f"the bridge is gone ({reason})")
            if control == _NO_ANSWER or not self._start_anew():
                time.sleep(0.01)
            else:
                was_reset = True
        return was_reset

    def _start_anew(self) -> bool:
        """Program every register; returns False while the bridge does not answer yet.

        While its memory space is off, stores are lost and loads return anything. What is read back
        goes first: all that follows has arrived.
        """
        try:
            for window in self.windows:
                window.clear_translation()
            self._program()
            self._set_mask(self._masked)
            self.enable_link()
        except NtbError:
            return False
        return True

    def _store_checked(self, offset: int, value: int) -> None:
        """Write a 64-bit register and read it back, so that the write has its effect on return."""
        self.function.store(0, offset, 8, value)
        if self.function.load(0, offset, 8) != value:
            raise NtbError(f"the register at {offset:#x} does not take {value:#x}")

    def close(self) -> None:
        """Close the windows, take the link down and give the device back."""
        for window in self.windows:
            window.clear_translation()
        self.disable_link()
        self.function.close()

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- link ---------------------------------------------------------------------------------

    @abstractmethod
    def enable_link(self) -> None:
        """Request the link, which comes up once the peer requests it, too."""

    @abstractmethod
    def disable_link(self) -> None:
        """Take the link down at once for both sides."""

    @abstractmethod
    def link(self) -> LinkState:
        """Return the present state of the link and clear its event."""

    @property
    @abstractmethod
    def link_vector(self) -> int:
        """The interrupt vector of changes of the link."""

    def wait_link(self, up: bool = True, timeout: float | None = None) -> LinkState:
        """Sleep until the link is up, or down if `up` is False; raises `NtbTimeout`.

        The link's interrupt wakes it.
        """
        deadline = Deadline(timeout)
        while (state := self.link()).up != up:
            if deadline.over:
                raise NtbTimeout(f"the link stays {state} (is the peer's driver up?)")
            self.vectors.wait([self.link_vector], deadline.left)
        return state

    # -- scratchpads --------------------------------------------------------------------------

    def spad(self, index: int) -> int:
        """Read a scratchpad of this side: 32 bits that the peer may have written."""
        return self.function.load(0, self._spads_at + self._spad_offset(index), 4)

    def set_spad(self, index: int, value: int) -> None:
        """Write a scratchpad of this side (32 bits)."""
        self.function.store(0, self._spads_at + self._spad_offset(index), 4, value)

    def peer_spad(self, index: int) -> int:
        """Read a scratchpad of the peer (32 bits)."""
        return self.function.load(0, self._peer_spads_at + self._spad_offset(index), 4)

    def set_peer_spad(self, index: int, value: int) -> None:
        """Write a scratchpad of the peer (32 bits)."""
        self.function.store(0, self._peer_spads_at + self._spad_offset(index), 4, value)

    def _spad_offset(self, index: int) -> int:
        if not 0 <= index < self.spads:
            raise NtbError(f"there are scratchpads 0 to {self.spads - 1}, not {index}")
        return 4 * index

    # -- doorbells ----------------------------------------------------------------------------

    @abstractmethod
    def ring(self, bits: int) -> None:
        """Ring those doorbells of the peer whose `bits` are set."""

    @abstractmethod
    def rung(self) -> int:
        """Return the doorbells that the peer has rung and nobody has cleared, as bits."""

    @abstractmethod
    def _clear_rung(self, bits: int) -> None:
        """Clear doorbells that have rung by a write to their register."""

    @abstractmethod
    def _set_mask(self, bits: int) -> None:
        """Write the mask register, whose bits stop the interrupts of doorbells."""

    @abstractmethod
    def vectors_of(self, bits: int) -> tuple[int, ...]:
        """Return the interrupt vectors of the doorbells in `bits`."""

    @abstractmethod
    def _rung_by(self, vectors: list[int]) -> int:
        """Return the doorbells for which these vectors have fired."""

    @property
    def masked(self) -> int:
        """The doorbells that do not interrupt, as bits."""
        return self._masked

    def mask(self, bits: int) -> None:
        """Stop the interrupts of these doorbells; rings stay pending."""
        self._masked |= self._known(bits)
        self._set_mask(self._masked)

    def unmask(self, bits: int) -> None:
        """Allow the interrupts of these doorbells; a pending ring interrupts at once."""
        self._masked &= ~self._known(bits)
        self._set_mask(self._masked)

    def clear(self, bits: int) -> None:
        """Clear these doorbells, which have rung."""
        # Before the register: a ring in between is one that a later wait must find.
        self.vectors.drain(self.vectors_of(self._known(bits)))
        self._clear_rung(bits)

    def wait_rung(self, bits: int, timeout: float | None = None) -> int:
        """Sleep until one of these doorbells interrupts; clears and returns those that did.

        They have to be unmasked. Raises `NtbTimeout`.
        """
        vectors = self._audible(bits)
        left, deadline = timeout, Deadline(timeout)
        while True:
            fired = self.vectors.wait(vectors, left)
            found = self._rung_by(fired) & bits if fired else 0
            if found:
                self._clear_rung(found)
                return found
            if deadline.over:
                raise NtbTimeout(f"none of the doorbells {bits:#x} has rung")
            left = deadline.left

    def listener(self, bits: int) -> Callable[[float], None]:
        """Return a function that polls for an interrupt of these doorbells for some seconds.

        It returns sooner than `wait_rung` and keeps its processor busy meanwhile. It reads and
        clears no register: every ring of a doorbell that is not masked interrupts, a pending one's,
        too. A vector may stand for other doorbells as well. Raises `NtbTimeout`.
        """
        spin = self.vectors.spinner(self._audible(bits))

        def listen(timeout: float) -> None:
            deadline = None
            while not spin(_LOOKS):
                deadline = deadline or Deadline(timeout)
                if deadline.over:
                    raise NtbTimeout(f"none of the doorbells {bits:#x} has rung")

        return listen

    def _audible(self, bits: int) -> tuple[int, ...]:
        """Return the vectors of those of these doorbells that are not masked."""
        if self._known(bits) & self._masked:
            raise NtbError(f"doorbells {bits & self._masked:#x} are masked and never interrupt")
        vectors = self._vectors_of.get(bits)
        if vectors is None:
            vectors = self._vectors_of[bits] = self.vectors_of(bits)
        return vectors

    def _known(self, bits: int) -> int:
        if bits & ~self.every_doorbell or not bits:
            raise NtbError(f"doorbells are bits of {self.every_doorbell:#x}, not {bits:#x}")
        return bits
