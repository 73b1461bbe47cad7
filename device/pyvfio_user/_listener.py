"""The listening socket, on which the first message of each client is awaited.

libvfio-user accepts a client and then blocks until the client has sent its VERSION message: one
silent client would stop every device of the process. So this package listens itself, never blocks,
and hands a client on only when its first message has arrived.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ._callbacks import Complaints
from ._files import MOST_FILES, RECEIVING, Closer
from .constants import HEADER, Header

log: Final = logging.getLogger(__name__)

MAX_FIRST_MESSAGE: Final = 4096
BACKLOG: Final = 128
"""Connections the kernel queues for `accept`; beyond it a non-blocking `connect` fails."""
ACCEPTED_AT_ONCE: Final = 64
"""Connections accepted at most in one call of `next_client`, so that it returns soon."""
REST_SECONDS: Final = 0.002
"""Seconds to sleep when a client can neither be accepted nor turned away.

Its socket stays readable meanwhile.
"""


class Listener:
    """Listens at `path` (mode 0600); keeps the newest client until its first message is complete.

    `closer` closes the connections of clients that are turned away, with all that a client has put
    into its connection. Raises OSError when the socket cannot be opened or another server answers
    on it.
    """

    def __init__(self, path: Path, closer: Closer) -> None:
        self.path = path
        self._closer = closer
        self._socket = _listen(path)
        self._inode = path.stat().st_ino
        self._pending: socket.socket | None = None
        self._resting = False
        """Whether the socket is left unwatched until its clients' descriptors are closed."""
        self._poll = select.epoll()
        self._poll.register(self._socket, select.EPOLLIN)
        self._complain = Complaints(log, str(path))
        self._reserve = -1
        self._renew_reserve()

    def fileno(self) -> int:
        """Return a descriptor that is readable when `next_client` may return a client."""
        return self._poll.fileno()

    def next_client(self) -> tuple[socket.socket, bytes] | None:
        """Return a client and its complete first message, taken off its socket; None without one.

        A client whose first message is incomplete is dropped when the next one connects.
        """
        self._accept()
        return self._ready_client()

    def _ready_client(self) -> tuple[socket.socket, bytes] | None:
        if self._pending is None:
            return None
        self._poll.poll(0)  # before the look at it: what comes later makes it readable again
        try:
            message = _first_message(self._pending, self._closer)
        except (OSError, ValueError) as error:
            log.debug("%s: turned a client away: %s", self.path, error)
            self._close_pending()
            return None
        if message is None:
            return None
        client, self._pending = self._pending, None
        self._poll.unregister(client)
        return client, message

    def refuse(self, taken: Callable[[], bool]) -> None:
        """Refuse the waiting client, if any, with EBUSY and close its connection.

        QEMU holds all its locks while it waits for the answer: silence would stop its guest.
        `taken` says whether the device has a client. It is asked after the new one was accepted:
        an earlier client that left before is known to have left by then.
        """
        self._accept()
        if self._pending is None or not taken():
            return
        found = self._ready_client()
        if found is None:
            return
        client, message = found
        refusal = Header._make(HEADER.unpack_from(message)).refusal(errno.EBUSY)
        with contextlib.suppress(OSError):
            client.send(refusal, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        self._closer.hang_up(client)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._closer.admits(self._listen_again):
                self._rest()
                return
            if self._resting:  # no thread will say so: others may hang for ever
                self._listen_again()
            try:
                client, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._turn_away(error)
                return
            self._close_pending()
            if self._reserve < 0:
                self._renew_reserve()
            client.setblocking(False)
            # By edges: an incomplete message that nobody completes must not keep the loop awake.
            self._poll.register(client, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
            self._pending = client

    def _rest(self) -> None:
        self._poll.modify(self._socket, 0)
        self._resting = True  # in this order: a thread may listen again in the middle
        if self._closer.admits(self._listen_again):  # by now
            self._listen_again()

    def _listen_again(self) -> None:
        """Look at the socket again; threads call it, too."""
        self._resting = False
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            self._poll.modify(self._socket, select.EPOLLIN)

    def _turn_away(self, error: OSError) -> None:
        """Close a client that could not be accepted, by means of the descriptor in reserve.

        Left in the queue it would wait for nothing, and keep the socket readable.
        """
        self._complain(f"turned a client away: {error.strerror}; see `ulimit -n`")
        self._close_reserve()
        try:
            client, _ = self._socket.accept()
            self._closer.hang_up(client)
        except OSError:  # the machine's limit: other processes take what becomes free
            time.sleep(REST_SECONDS)
        self._renew_reserve()

    def _renew_reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve = os.dup(self._poll.fileno())

    def _close_reserve(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
        self._reserve = -1

    def _close_pending(self) -> None:
        # Cleared first: a signal handler may raise in the middle, and then `close` is called again.
        client, self._pending = self._pending, None
        if client is not None:
            self._poll.unregister(client)
            self._closer.hang_up(client)

    def close(self) -> None:
        """Stop listening and remove the socket file, if it is still this one's."""
        self._close_pending()
        self._poll.close()
        self._close_reserve()
        self._closer.hang_up(self._socket)
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            pass


def _first_message(client: socket.socket, closer: Closer) -> bytes | None:
    """The client's first message if all of it has arrived; raises ValueError, OSError.

    No descriptors belong to it.
    """
    try:
        seen = client.recv(MAX_FIRST_MESSAGE, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    size = HEADER.size
    if len(seen) >= size:
        size = Header._make(HEADER.unpack_from(seen)).size
        if not HEADER.size <= size <= MAX_FIRST_MESSAGE:
            raise ValueError(f"its first message claims {size} bytes")
        if len(seen) >= size:
            message, files, _, _ = socket.recv_fds(client, size, MOST_FILES, RECEIVING)
            closer.close(files)
            if len(message) < size:
                raise ValueError("its first message came with descriptors in the middle")
            return message
    if _has_hung_up(client):
        raise ConnectionResetError(errno.ECONNRESET, "it hung up within its first message")
    return None


def _has_hung_up(client: socket.socket) -> bool:
    """Whether nothing will come any more, whatever is waiting."""
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return bool(poll.poll(0))


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path`; the file of a server that has ended is replaced."""
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
    """Remove the socket file at `path`; raises OSError if a server uses it or it is no socket."""
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
            pass  # a full backlog: a server listens
    raise OSError(errno.EADDRINUSE, f"{path} is in use by another server")
