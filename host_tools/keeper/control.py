"""The keeper's control socket: one request per connection, served in the keeper's main thread."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import messages
from bluebridge.host_tools.progress import Progress

_PATIENCE = 5.0
"""The seconds that a client may take between connecting and the end of its request."""

Handler = Callable[[dict[str, Any], Progress], dict[str, Any]]
"""Carries out a request and returns the values of its answer. Raises `LabError`."""


class Control:
    """The listening side of a keeper's control socket."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()
        self.socket.setblocking(False)
        self._handler = handler

    def serve(self) -> None:
        """Serve all connections that wait; return when there are no more."""
        while True:
            try:
                connection, _ = self.socket.accept()
            except BlockingIOError:
                return
            with connection:
                connection.settimeout(_PATIENCE)
                # A client may hang up before it has its answer.
                with contextlib.suppress(OSError):
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        def progress(message: str) -> None:
            with contextlib.suppress(OSError):
                messages.send(connection, progress=message)

        try:
            request = next(messages.Reader(connection).read(), None)
            if request is not None:
                messages.send(connection, done=self._handler(request, progress))
        except LabError as error:
            messages.send(connection, error=messages.error_fields(error))

    def close(self) -> None:
        """Stop listening for requests."""
        self.socket.close()


def ask(path: Path, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Send a request to a keeper, wait until it is carried out, and return the answer.

    `progress` is called with each message of progress. Raises `LabError`, for the failure of the
    request too.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
            messages.send(connection, **request)
        except OSError as error:
            raise LabError(f"the keeper does not listen: {error.strerror}", _LOOK) from None
        for message in messages.Reader(connection).messages():
            if "progress" in message:
                progress(str(message["progress"]))
            elif "error" in message:
                raise messages.as_error(message["error"])
            elif "done" in message:
                return dict(message["done"])
    raise LabError("the keeper ended meanwhile", _LOOK)


_LOOK = "`bluebridge ps` tells what runs"
