"""The ground of RNBD's engines: memory of RTRS, and the devices that a server exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bluebridge.guest.protocols.rnbd.engine.messages import Geometry
from bluebridge.guest.protocols.rtrs.engine.actions import Direction
from bluebridge.guest.protocols.rtrs.engine.interface import Permit


class SlotMemory(Protocol):
    """Memory for the data of a client's requests."""

    def data(self, slot: int) -> memoryview:
        """All data of one slot, `max_io_size` bytes or more, writable."""


class ChunkMemory(Protocol):
    """Memory that the clients of a server write to."""

    def view(self, session: int, chunk: int) -> memoryview:
        """All bytes of one chunk, writable."""


class Requester(Protocol):
    """The part of RTRS's `ClientEngine` that a client uses."""

    @property
    def name(self) -> str:
        """The session's."""

    @property
    def max_io_size(self) -> int:
        """Bytes of data of one request."""

    def get_permit(self, *, admin: bool = False, cpu: int = 0) -> Permit | None:
        """As `ClientEngine.get_permit`."""

    def put_permit(self, permit: Permit) -> None:
        """As `ClientEngine.put_permit`."""

    def request(
        self, direction: Direction, permit: Permit, user: bytes, length: int, now: float
    ) -> int:
        """As `ClientEngine.request`."""


class Responder(Protocol):
    """The part of RTRS's `ServerEngine` that a server uses."""

    def respond(self, operation: int, errno: int, now: float) -> None:
        """As `ServerEngine.respond`."""


class Backend(Protocol):
    """The bytes of an export. All methods raise `OSError`; offsets and lengths are in bytes.

    They are whole sectors inside of the device when the engine calls.
    """

    @property
    def geometry(self) -> Geometry:
        """Return the sizes that clients are told; the device may grow between two calls."""

    @property
    def writable(self) -> bool:
        """Whether it can be opened for writing."""

    @property
    def place(self) -> str:
        """The file that has the bytes; "" if there is none."""

    def read(self, offset: int, into: memoryview) -> None:
        """Fill all of `into`."""

    def write(self, offset: int, data: memoryview, *, fua: bool) -> None:
        """Store all of `data`; on stable storage before it returns if `fua`."""

    def flush(self) -> None:
        """Put on stable storage what was written before."""

    def discard(self, offset: int, length: int) -> None:
        """The contents are not needed any more."""

    def write_zeroes(self, offset: int, length: int, *, fua: bool) -> None:
        """Store zeroes."""


Log = Callable[[str], None]
"""Takes one line about something that went wrong."""
