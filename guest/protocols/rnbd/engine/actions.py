"""The actions of RNBD's engines, and what is below them: memory of RTRS, backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from bluebridge.device.layout.net.rnbd import AccessMode, Operation
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry
from bluebridge.guest.protocols.rtrs.engine.actions import Direction
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

Log = Callable[[str], None]
"""The type of a call that takes one line about something that went wrong."""


class DeviceState(Enum):
    """The states of a client's device; the values are those of the file `state`."""

    INIT = "init"
    MAPPED = "open"
    DISCONNECTED = "closed"
    UNMAPPED = "unmapped"


@dataclass(eq=False, slots=True)
class ClientDevice:
    """A mapped device: `number` is the server's, `geometry` the server's latest answer."""

    name: str
    access: AccessMode
    state: DeviceState = DeviceState.INIT
    number: int = 0
    geometry: Geometry = field(default_factory=lambda: Geometry(0))


class BlockRequest(NamedTuple):
    """A request of the block layer: first sector of 512 bytes, length in bytes, `rnbd.IoFlag`s."""

    operation: Operation
    sector: int
    length: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Mapped:
    """`map` is over; if `errno` is not 0 but positive, the device is forgotten."""

    device: ClientDevice
    errno: int


@dataclass(frozen=True, slots=True)
class Unmapped:
    """`unmap` is over; the server may not have been told."""

    device: ClientDevice


@dataclass(frozen=True, slots=True)
class Remapped:
    """A device was opened again, on request or after a break; `errno` is 0 or positive."""

    device: ClientDevice
    errno: int


@dataclass(frozen=True, slots=True)
class Offline:
    """No path is connected, so that requests of the device fail until it is remapped."""

    device: ClientDevice


@dataclass(frozen=True, slots=True)
class Resized:
    """The size in `device.geometry` has changed."""

    device: ClientDevice


@dataclass(frozen=True, slots=True)
class Done:
    """A request is over; data of a read is in the slot until the permit is released."""

    device: ClientDevice
    tag: int
    permit: Permit
    errno: int


@dataclass(frozen=True, slots=True)
class PermitFree:
    """A device that was refused a permit may ask again."""

    device: ClientDevice


@dataclass(frozen=True, slots=True)
class SessionReady:
    """The server answered SESS_INFO for the first time; `errno` 0 or positive."""

    errno: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """RTRS has ended the session."""


ClientAction = (
    Mapped
    | Unmapped
    | Remapped
    | Offline
    | Resized
    | Done
    | PermitFree
    | SessionReady
    | SessionClosed
)


class Requester(Protocol):
    """The part of RTRS's `ClientSession` that a client uses, by the same names."""

    @property
    def name(self) -> str: ...

    @property
    def max_io_size(self) -> int: ...

    def get_permit(self, *, admin: bool = False, cpu: int = 0) -> Permit | None: ...

    def put_permit(self, permit: Permit) -> None: ...

    def request(
        self, direction: Direction, permit: Permit, user: bytes, length: int, now: float
    ) -> int: ...


class Backend(Protocol):
    """The device of an export: its bytes; all methods raise `OSError`.

    Offsets and lengths are in bytes: whole sectors inside of the device.
    """

    @property
    def geometry(self) -> Geometry:
        """Return the sizes that clients are told; the device may grow between two calls."""

    @property
    def writable(self) -> bool:
        """True if the backend can be opened for writing."""

    @property
    def place(self) -> str:
        """The path of the file that has the bytes; "" if there is none."""

    def read(self, offset: int, into: memoryview) -> None:
        """Fill all of `into`."""

    def write(self, offset: int, data: memoryview, *, fua: bool) -> None:
        """Store all of `data`; on stable storage before it returns if `fua`."""

    def flush(self) -> None:
        """Put all earlier writes on stable storage."""

    def discard(self, offset: int, length: int) -> None:
        """Note that the contents of a range are not needed any more."""

    def write_zeroes(self, offset: int, length: int, *, fua: bool) -> None:
        """Zero a range; on stable storage before it returns if `fua`."""
