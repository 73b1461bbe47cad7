"""Lines of JSON between a keeper and those who ask it: progress, then one result or one error.

{"progress": "restoring guest a"}
{"done": {...}}          or    {"error": {"what": ..., "mend": ..., "transcript": ...}}
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

from bluebridge.host_tools.errors import LabError

_LONGEST = 1 << 20


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
