"""A non-transparent bridge as its driver sees it, whatever its generation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.guest.drivers.bus.interface import DmaMemory, Function
from bluebridge.guest.drivers.bus.vectors import Deadline, Vectors
from bluebridge.guest.drivers.ntb.errors import NtbError, NtbTimeout
from bluebridge.guest.drivers.ntb.window import Window
from bluebridge.guest.errors import DeviceError

_SPEEDS = {1: "2.5 GT/s", 2: "5 GT/s", 3: "8 GT/s", 4: "16 GT/s", 5: "32 GT/s"}
LINK_WIDTH_SHIFT, LINK_WIDTH_MASK, LINK_SPEED_MASK = 4, 0x3F, 0xF
LINK_ACTIVE = 1 << 13
"""Link status as in PCI Express: data link active, lanes, speed."""
ALL_ONES = 0xFFFF
_LOOKS = 256
"""At interrupts, between two at the clock."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """The link: whether it is up, its lanes and its speed in words."""

    up: bool
    width: int = 0
    speed: str = ""

    @classmethod
    def of(cls, status: int) -> LinkState:
        """From a link status register. Raises `DeviceError` when nobody answers."""
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
    _spads_at: int
    """The offset in BAR0 where the scratchpads begin; the peer's begin at `_peer_spads_at`."""
    _peer_spads_at: int
    port: int
    """0 on the upstream side, 1 on the downstream side."""
    windows: tuple[Window, ...]

    def __init__(self, function: Function, model: BridgeModel, vectors: int) -> None:
        self.function = function
        self.name = model.name
        self.vectors = Vectors(function.enable_interrupts(vectors))
        self.every_doorbell = (1 << self.doorbells) - 1
        """All doorbells as bits."""
        self._masked = self.every_doorbell
        self._vectors_of: dict[int, tuple[int, ...]] = {}

    @property
    def peer_port(self) -> int:
        """The port number of the other side."""
        return 1 - self.port

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Contiguous zeroed memory that windows can show and engines can reach."""
        return self.function.allocate(length, align)

    def _store_checked(self, offset: int, value: int) -> None:
        """Write a register of 64 bits and read it back, which returns when it has its effect."""
        self.function.store(0, offset, 8, value)
        if self.function.load(0, offset, 8) != value:
            raise NtbError(f"the register at {offset:#x} does not take {value:#x}")

    def close(self) -> None:
        """Link down, windows closed, device given back."""
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
        """Want the link; it comes up once the peer wants it, too."""

    @abstractmethod
    def disable_link(self) -> None:
        """Take the link down, at once and for both."""

    @abstractmethod
    def link(self) -> LinkState:
        """The link now; forgets its event."""

    @property
    @abstractmethod
    def link_vector(self) -> int:
        """The vector that tells of the link."""

    def wait_link(self, up: bool = True, timeout: float | None = None) -> LinkState:
        """Wait until the link is up, or down. Raises `NtbTimeout`.

        Sleeps on the link's interrupt.
        """
        deadline = Deadline(timeout)
        while (state := self.link()).up != up:
            if deadline.over:
                raise NtbTimeout(f"the link stays {state} (is the peer's driver up?)")
            self.vectors.wait([self.link_vector], deadline.left)
        return state

    # -- scratchpads --------------------------------------------------------------------------

    def spad(self, index: int) -> int:
        """An own scratchpad: 32 bits that the peer may have written."""
        return self.function.load(0, self._spads_at + self._spad_offset(index), 4)

    def set_spad(self, index: int, value: int) -> None:
        """Write an own scratchpad."""
        self.function.store(0, self._spads_at + self._spad_offset(index), 4, value)

    def peer_spad(self, index: int) -> int:
        """A scratchpad of the peer."""
        return self.function.load(0, self._peer_spads_at + self._spad_offset(index), 4)

    def set_peer_spad(self, index: int, value: int) -> None:
        """Write a scratchpad of the peer."""
        self.function.store(0, self._peer_spads_at + self._spad_offset(index), 4, value)

    def _spad_offset(self, index: int) -> int:
        if not 0 <= index < self.spads:
            raise NtbError(f"there are scratchpads 0 to {self.spads - 1}, not {index}")
        return 4 * index

    # -- doorbells ----------------------------------------------------------------------------

    @abstractmethod
    def ring(self, bits: int) -> None:
        """Ring doorbells of the peer."""

    @abstractmethod
    def rung(self) -> int:
        """The peer's rings that nobody has cleared."""

    @abstractmethod
    def _clear_rung(self, bits: int) -> None:
        """Write the register that clears them."""

    @abstractmethod
    def _set_mask(self, bits: int) -> None:
        """Write the mask: doorbells that do not interrupt."""

    @abstractmethod
    def vectors_of(self, bits: int) -> tuple[int, ...]:
        """The vectors that tell of these doorbells."""

    @abstractmethod
    def _rung_by(self, vectors: list[int]) -> int:
        """The doorbells for which these vectors have fired."""

    @property
    def masked(self) -> int:
        """Doorbells that do not interrupt."""
        return self._masked

    def mask(self, bits: int) -> None:
        """No interrupts of these doorbells; they stay pending."""
        self._masked |= self._known(bits)
        self._set_mask(self._masked)

    def unmask(self, bits: int) -> None:
        """Interrupts of these doorbells, at once for those that are pending."""
        self._masked &= ~self._known(bits)
        self._set_mask(self._masked)

    def clear(self, bits: int) -> None:
        """Clear these doorbells, which have rung."""
        # Before the register: a ring in between is one that a later wait must find.
        self.vectors.drain(self.vectors_of(self._known(bits)))
        self._clear_rung(bits)

    def wait_rung(self, bits: int, timeout: float | None = None) -> int:
        """Sleep until one of these doorbells interrupts; which have, cleared. Raises `NtbTimeout`.

        They have to be unmasked.
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
        """A function that waits so many seconds for an interrupt of these doorbells, without sleep.

        It returns sooner than `wait_rung` and keeps its processor busy meanwhile. Nothing is read
        or cleared: every ring of a doorbell that is not masked interrupts, a pending one's, too. A
        vector may stand for other doorbells as well. Raises `NtbTimeout`.
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
        """The vectors of doorbells that are not masked."""
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
