"""The server's engine: opens, reads and writes exports for the sessions of an RTRS server.

As in the kernel's rnbd-srv.c: process_msg_sess_info, process_msg_open, process_msg_close.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping

from bluebridge.device.layout.net.rnbd import OPEN_RSP, VERSION_MAJOR, AccessMode, MessageType
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import Log
from bluebridge.guest.protocols.rnbd.engine.exports import (
    Export,
    OpenDevice,
    SessionDevices,
    by_path,
    carry_out,
    full_path,
)
from bluebridge.guest.protocols.rnbd.engine.messages import MessageError
from bluebridge.guest.protocols.rtrs.engine.actions import Direction, Serve, SessionDown, SessionUp


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
        self._exports: Mapping[str, Export] = by_path(exports)
        self._sessions: dict[int, SessionDevices] = {}
        self._messages: dict[int, Callable[[SessionDevices, Serve], None]] = {
            MessageType.SESS_INFO: self._introduce,
            MessageType.OPEN: self._open,
            MessageType.CLOSE: self._close,
        }

    @property
    def exports(self) -> Mapping[str, Export]:
        """The exports by full path."""
        return self._exports

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
            self._end(action.session)

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
        export = self._exports.get(full_path(name))
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

    def _end(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        for device in session.opened() if session else ():
            device.export.close(device.access)


def _need_room(action: Serve, length: int) -> None:
    """Raise `MessageError` unless the client can read an answer of `length` bytes."""
    if action.direction != Direction.READ or action.length < length:
        raise MessageError(f"no room for an answer of {length} bytes")
