"""The server's engine: opens, checks, reads and writes exports for the sessions of an RTRS server.

As in the kernel's rnbd-srv.c: process_msg_sess_info, process_msg_open, process_msg_close.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bluebridge.device.layout.net.rnbd import (
    OPEN_RSP,
    OPERATION_MASK,
    SECTOR,
    VERSION_MAJOR,
    AccessMode,
    IoFlag,
    MessageType,
    Operation,
)
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import Backend, Log
from bluebridge.guest.protocols.rnbd.engine.messages import IoMessage, MessageError
from bluebridge.guest.protocols.rtrs.engine.actions import Direction, Serve, SessionDown, SessionUp

PATH_MAX = 4096

_READ = int(Operation.READ)
_WRITE = int(Operation.WRITE)
_FLUSH = int(Operation.FLUSH)
_DISCARD = int(Operation.DISCARD)
_SECURE_ERASE = int(Operation.SECURE_ERASE)
_WRITE_ZEROES = int(Operation.WRITE_ZEROES)
_FUA = int(IoFlag.FUA)


@dataclass(slots=True)
class Export:
    """A backend under a name; `writers` counts who opened it rw or migration."""

    name: str
    backend: Backend
    writers: int = 0

    def open(self, access: AccessMode) -> None:
        """Count one more user; raises `PermissionError` as rnbd_server: EACCES, EPERM."""
        if access == AccessMode.RO:
            return
        if not self.backend.writable:
            raise PermissionError(errno.EACCES, f"{self.name} is read-only")
        if self.writers >= (1 if access == AccessMode.RW else 2):
            raise PermissionError(errno.EPERM, f"{self.name} has {self.writers} writers")
        self.writers += 1

    def close(self, access: AccessMode) -> None:
        """Count one user less."""
        if access != AccessMode.RO:
            self.writers -= 1


@dataclass(slots=True)
class OpenDevice:
    """An open device of one session; `name` is as the client wrote it."""

    number: int
    session: str
    name: str
    access: AccessMode
    export: Export


@dataclass(slots=True)
class SessionDevices:
    """The devices of one session by number; a number whose device was closed by force is None.

    Such a number is not given again, since the client still uses it.
    """

    name: str
    version: int = 0
    devices: dict[int, OpenDevice | None] = field(default_factory=dict)

    def find(self, name: str) -> OpenDevice | None:
        """Return the open device of a name, None if there is none."""
        return next((item for item in self.opened() if item.name == name), None)

    def opened(self) -> list[OpenDevice]:
        """Return all devices that are open."""
        return [item for item in self.devices.values() if item is not None]

    def free_number(self) -> int:
        """Return the lowest number that is not in use."""
        number = 0
        while number in self.devices:
            number += 1
        return number


def full_path(name: str) -> str:
    """Return a name as rnbd_server looks for it: below /, without doubled slashes.

    Raises `OSError` with EINVAL for a name that is too long or has "..".
    """
    if len(name) + 1 >= PATH_MAX or ".." in name:
        raise OSError(errno.EINVAL, "a name that is too long or leads upwards")
    return "/" + "/".join(part for part in name.split("/") if part)


def by_path(exports: Iterable[Export]) -> Mapping[str, Export]:
    """Return exports by the `full_path` of their names; raises `OSError` and `ValueError`."""
    found: dict[str, Export] = {}
    for export in exports:
        if found.setdefault(full_path(export.name), export) is not export:
            raise ValueError(f"{export.name} is exported twice")
    return found


def carry_out(
    device: OpenDevice, message: IoMessage, direction: Direction, data: memoryview
) -> None:
    """Carry out `message`; `data` is what came with it, or the room for its answer.

    Raises `OSError`: EINVAL, EIO beyond the end, EPERM for changes through a read-only device,
    EOPNOTSUPP, and what the backend raises; and `MessageError`.
    """
    operation = message.rw & OPERATION_MASK
    backend = device.export.backend
    if operation == _FLUSH:
        # The kernel's client sends sector 2^64 - 1 with it.
        _need(not message.size and not data, "a flush with data")
        backend.flush()
        return
    size = message.size
    _need(size % SECTOR == 0, f"{size} bytes are no sectors")
    if message.sector + size // SECTOR > backend.geometry.sectors:
        raise OSError(errno.EIO, f"beyond the end of {device.name}: sector {message.sector}")
    offset = message.sector * SECTOR
    if operation == _READ:
        _need(direction == Direction.READ and len(data) == size, "data of another length")
        backend.read(offset, data)
        return
    if device.access == AccessMode.RO:
        raise OSError(errno.EPERM, f"a change of {device.name}, which is open read-only")
    if operation == _WRITE:
        _need(direction == Direction.WRITE and len(data) == size, "data of another length")
        backend.write(offset, data, fua=bool(message.rw & _FUA))
        return
    _need(not data, "data where none belongs")
    if operation == _DISCARD:
        _need_support(backend.geometry.max_discard_sectors, "discard")
        backend.discard(offset, size)
    elif operation == _WRITE_ZEROES:
        _need_support(backend.geometry.max_write_zeroes_sectors, "write zeroes")
        backend.write_zeroes(offset, size, fua=bool(message.rw & _FUA))
    else:
        _need(operation == _SECURE_ERASE, f"operation {operation}")
        _need_support(0, "secure erase")


def _need_support(most_sectors: int, operation: str) -> None:
    """Raise `OSError` with EOPNOTSUPP if a device takes no sector of an operation at a time."""
    if not most_sectors:
        raise OSError(errno.EOPNOTSUPP, operation)


def _need(condition: bool, wrong: str) -> None:
    if not condition:
        raise MessageError(wrong)


class RnbdServer:
    """A server of exports that answers each `Serve` within `handle`; backends may block it.

    `respond` ends an operation of the RTRS server, `view` returns all bytes of a chunk.
    `log` gets a line for each refusal that is the client's doing. Raises `ValueError` and `OSError`
    for exports that cannot be told apart or found.
    """

    def __init__(
        self,
        respond: Callable[[int, int, float], None],
        view: Callable[[int, int], memoryview],
        exports: Iterable[Export],
        log: Log,
    ) -> None:
        self._respond = respond
        self._view = view
        self._log = log
        self.exports = by_path(exports)
        """The exports by full path."""
        self._sessions: dict[int, SessionDevices] = {}
        self._messages: dict[int, Callable[[SessionDevices, Serve], None]] = {
            MessageType.SESS_INFO: self._introduce,
            MessageType.OPEN: self._open,
            MessageType.CLOSE: self._close,
        }

    @property
    def sessions(self) -> Iterable[SessionDevices]:
        """Return all sessions in the order in which they came."""
        return self._sessions.values()

    def handle(self, action: Serve | SessionUp | SessionDown, now: float) -> None:
        """Take an action of the RTRS server."""
        if isinstance(action, Serve):
            self._respond(action.operation, self._serve(action), now)
        elif isinstance(action, SessionUp):
            self._sessions[action.session] = SessionDevices(action.name)
        else:
            session = self._sessions.pop(action.session, None)
            for device in session.opened() if session else ():
                device.export.close(device.access)

    def force_close(self, device: OpenDevice) -> None:
        """Take a device away from its session; its number stays in use."""
        for session in self._sessions.values():
            if session.devices.get(device.number) is device:
                session.devices[device.number] = None
                device.export.close(device.access)

    def _serve(self, action: Serve) -> int:
        session = self._sessions.get(action.session)
        if session is None:
            return errno.ENODEV
        try:
            kind = messages.message_type(action.user)
            if kind == MessageType.IO:
                self._io(session, action)
            elif (handler := self._messages.get(kind)) is not None:
                handler(session, action)
            else:
                raise MessageError(f"message type {kind}")
        except MessageError as error:
            self._log(f"session {session.name}: {error}")
            return errno.EINVAL
        except OSError as error:
            self._log(f"session {session.name}: {error.strerror}")
            return error.errno or errno.EIO
        return 0

    def _io(self, session: SessionDevices, action: Serve) -> None:
        message = messages.parse_io(action.user)
        device = session.devices.get(message.device)
        if device is None:
            raise OSError(errno.ENOTCONN, f"I/O for the unknown device {message.device}")
        data = self._view(action.session, action.chunk)[: action.length]
        carry_out(device, message, action.direction, data)

    def _introduce(self, session: SessionDevices, action: Serve) -> None:
        version = messages.parse_session(action.user, MessageType.SESS_INFO)
        session.version = min(version, VERSION_MAJOR)
        self._answer(action, messages.pack_session(MessageType.SESS_INFO_RSP, session.version))

    def _open(self, session: SessionDevices, action: Serve) -> None:
        """Open a device, or name the one that the session has opened before."""
        name, mode = messages.parse_open(action.user)
        _need_room(action, OPEN_RSP.size)
        device = session.find(name) or self._opened(session, name, mode)
        self._answer(action, messages.pack_opened(device.number, device.export.backend.geometry))

    def _opened(self, session: SessionDevices, name: str, mode: int) -> OpenDevice:
        export = self.exports.get(full_path(name))
        if export is None:
            raise OSError(errno.ENOENT, f"no export {name!r}")
        if mode not in AccessMode.__members__.values():
            raise OSError(errno.EINVAL, f"access mode {mode} for {name!r}")
        access = AccessMode(mode)
        export.open(access)
        device = OpenDevice(session.free_number(), session.name, name, access, export)
        session.devices[device.number] = device
        return device

    def _close(self, session: SessionDevices, action: Serve) -> None:
        """Close a device; the kernel's server answers 0 for an unknown one, too."""
        number = messages.parse_close(action.user)
        device = session.devices.get(number)
        if device is not None:
            del session.devices[number]
            device.export.close(device.access)

    def _answer(self, action: Serve, answer: bytes) -> None:
        """Put an answer where the client reads it; raises `MessageError` if it has no room."""
        _need_room(action, len(answer))
        self._view(action.session, action.chunk)[: len(answer)] = answer


def _need_room(action: Serve, length: int) -> None:
    """Raise `MessageError` unless the client can read an answer of `length` bytes."""
    if action.direction != Direction.READ or action.length < length:
        raise MessageError(f"no room for an answer of {length} bytes")
