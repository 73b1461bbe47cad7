"""The listening socket, and the wait for a client's first message.

libvfio-user accepts a client and then blocks until the client has sent its VERSION message: one
silent client would stop every device of the process. So this side listens itself, never blocks,
and hands a client on only when its first message is there.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

from ._messages import HEADER, Header

log = logging.getLogger(__name__)

MAX_GREETING = 4096
BACKLOG = 128
"""Callers who may wait to be let in; who does not wait in `connect` is turned away beyond that."""
CALLERS_AT_ONCE = 64
"""So many callers are let in before the caller of `greeting` may do something else."""


class Doorway:
    """Listens at `path` (mode 0600) and keeps the newest caller until it has introduced itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = _listen(path)
        self._inode = path.stat().st_ino
        self._caller: socket.socket | None = None
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)

    def fileno(self) -> int:
        """A descriptor that is readable when `greeting` may have something."""
        return self._poll.fileno()

    def greeting(self) -> tuple[socket.socket, bytes] | None:
        """A client with its complete first message, taken off its socket; None if none is there.

        A caller that has not spoken makes way for the next one.
        """
        self._accept()
        return self._introduction()

    def _introduction(self) -> tuple[socket.socket, bytes] | None:
        if self._caller is None:
            return None
        try:
            message = _first_message(self._caller)
        except (OSError, ValueError) as error:
            log.debug("%s: turned a client away: %s", self.path, error)
            self._dismiss()
            return None
        if message is None:
            return None
        client, self._caller = self._caller, None
        self._poll.unregister(client)
        return client, message

    def turn_away(self, taken: Callable[[], bool]) -> None:
        """Tell whoever has introduced itself that the device is taken (EBUSY), and hang up.

        QEMU holds all its locks while it waits for the answer: silence would stop its guest.
        `taken` is asked after the caller was let in: a client that left before the caller came
        is known to have left by then.
        """
        self._accept()
        if self._caller is None or not taken():
            return
        found = self._introduction()
        if found is None:
            return
        caller, message = found
        refusal = Header._make(HEADER.unpack_from(message)).refusal(errno.EBUSY)
        with caller, contextlib.suppress(OSError):
            caller.send(refusal, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _accept(self) -> None:
        for _ in range(CALLERS_AT_ONCE):
            try:
                caller, _ = self._listener.accept()
            except BlockingIOError:
                return
            self._dismiss()
            caller.setblocking(False)
            self._poll.register(caller, select.EPOLLIN)
            self._caller = caller

    def _dismiss(self) -> None:
        # Forgotten first: a signal handler may raise in the middle, and then `close` comes again.
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()  # which takes it out of the poll set, too

    def close(self) -> None:
        """Stop listening and remove the socket file, if it is still ours."""
        self._dismiss()
        self._poll.close()
        self._listener.close()
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            pass


def _first_message(caller: socket.socket) -> bytes | None:
    """The caller's first message if all of it has arrived; raises ValueError, OSError."""
    try:
        seen = caller.recv(MAX_GREETING, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    if not seen:
        raise ConnectionResetError(errno.ECONNRESET, "it hung up before it said anything")
    if len(seen) < HEADER.size:
        return None
    size = Header._make(HEADER.unpack_from(seen)).size
    if not HEADER.size <= size <= MAX_GREETING:
        raise ValueError(f"its first message claims {size} bytes")
    return caller.recv(size) if len(seen) >= size else None


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path`; the file a dead server left behind is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            _bind(listener, path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            _remove_stale(path)
            _bind(listener, path)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind(listener: socket.socket, path: Path) -> None:
    # The file must never be open to others, not even between bind and a chmod.
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)


def _remove_stale(path: Path) -> None:
    """Remove the socket file at `path` unless somebody answers there, or it is no socket."""
    if not path.is_socket():
        raise OSError(errno.EEXIST, f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # a full backlog: somebody listens
    raise OSError(errno.EADDRINUSE, f"{path} is in use by another server")
