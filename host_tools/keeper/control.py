"""The keeper's control socket, served in its main thread: lines of JSON, one request each time.

{"progress": "restoring guest a"}
{"done": {...}}          or    {"error": {"what": ..., "mend": ..., "transcript": ...}}
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bluebridge.host_tools.errors import LabError, Progress

_LONGEST = 1 << 20

_PATIENCE = 5.0
"""The seconds that a client may take between connecting and the end of its request, or to read."""
_MOST_CLIENTS = 16
"""The clients whose requests are awaited at a time; one more takes the place of the first."""

Handler = Callable[[dict[str, Any], Progress], dict[str, Any]]
"""Carries out a request and returns the values of its answer. Raises `LabError`."""

_LOOK = "`bluebridge ps` tells what runs"


def send(connection: socket.socket, **message: Any) -> None:
    """Send one message. Raises `OSError` when the other side has hung up."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def error_fields(error: LabError) -> dict[str, Any]:
    """Return the fields of an error as the JSON value of an `error` message."""
    return {
        "what": error.what,
        "mend": error.mend,
        "transcript": error.transcript[-_LONGEST // 4 :],
        "status": error.status,
        "aloud": error.aloud,
    }


def as_error(fields: dict[str, Any]) -> LabError:
    """Return the `LabError` that has the values of `error_fields`."""
    error = LabError(str(fields["what"]), str(fields["mend"]), str(fields["transcript"]))
    error.status = int(fields["status"])
    error.aloud = bool(fields["aloud"])
    return error


class Reader:
    """Splits the bytes from a socket into messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self.over = False
        """Whether the other side has hung up."""

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete after one `recv`, which blocks until data comes.

        Raises `LabError` for a line that is no message, `TimeoutError` as the socket does.
        """
        try:
            data = self._connection.recv(65536)
        except ConnectionError:
            data = b""
        self.over = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _LONGEST:
            raise LabError("the keeper's socket carries no messages")
        for line in lines:
            yield _parse(line)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield messages until the other side hangs up."""
        while not self.over:
            yield from self.read()


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise LabError(f"no message: {line[:80]!r}")
    return message


class _Client:
    """A connection whose request has not come yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = Reader(connection)
        self.deadline = time.monotonic() + _PATIENCE


class Control:
    """The listening side of a keeper's control socket. Nobody who is silent is waited for."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._socket.setblocking(False)
        self._handler = handler
        self._clients: list[_Client] = []
        self._selector = selectors.EpollSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return a descriptor that can be read when `serve` has something to do."""
        return self._selector.fileno()

    def serve(self) -> None:
        """Accept clients, carry out the requests that have come, drop who has been silent long."""
        for key, _ in self._selector.select(0):
            if key.data is None:
                self._accept()
            else:
                self._hear(key.data)
        for client in [each for each in self._clients if time.monotonic() > each.deadline]:
            self._drop(client)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._socket.accept()
                if len(self._clients) >= _MOST_CLIENTS:
                    self._drop(self._clients[0])
                self._clients.append(_Client(connection))
                connection.setblocking(False)
                self._selector.register(connection, selectors.EVENT_READ, self._clients[-1])

    def _hear(self, client: _Client) -> None:
        if client not in self._clients:  # dropped for a newer one
            return
        try:
            with contextlib.suppress(BlockingIOError):
                request = next(client.reader.read(), None)
                if request is None and not client.reader.over:
                    return
                client.connection.settimeout(_PATIENCE)
                if request is not None:
                    self._answer(client.connection, request)
        except LabError as error:
            with contextlib.suppress(OSError):
                send(client.connection, error=error_fields(error))
        except OSError:
            pass  # it hung up before it had its answer
        self._drop(client)

    def _answer(self, connection: socket.socket, request: dict[str, Any]) -> None:
        def progress(message: str) -> None:
            with contextlib.suppress(OSError):
                send(connection, progress=message)

        send(connection, done=self._handler(request, progress))

    def _drop(self, client: _Client) -> None:
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        client.connection.close()

    def close(self) -> None:
        """Stop listening for requests."""
        for client in list(self._clients):
            self._drop(client)
        self._selector.close()
        self._socket.close()


def ask(path: Path, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Send a request to a keeper, wait until it is carried out, and return the answer.

    `progress` is called with each message of progress. Raises `LabError`, for the failure of the
    request too.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
            send(connection, **request)
        except OSError as error:
            raise LabError(f"the keeper does not listen: {error.strerror}", _LOOK) from None
        for message in Reader(connection).messages():
            if "progress" in message:
                progress(str(message["progress"]))
            elif "error" in message:
                raise as_error(message["error"])
            elif "done" in message:
                return dict(message["done"])
    raise LabError("the keeper ended meanwhile", _LOOK)
