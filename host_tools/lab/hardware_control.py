"""Sends orders to the emulated hardware: lines to the device server (`device.server.control`)."""

from __future__ import annotations

import socket
from pathlib import Path

from bluebridge.host_tools.errors import LabError, UsageError

SOCKET = "hardware.sock"
"""The name of the device server's control socket in the folder of a pair."""
_SECONDS = 10.0
_LONGEST = 1 << 18


def tell(path: Path, line: str, seconds: float = _SECONDS) -> list[str]:
    """Have the server at `path` carry out a line; return its answer's lines without the final `ok`.

    Waits `seconds` for each part of the answer. Raises `UsageError` with the server's objection,
    `LabError` when there is no answer.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(f"{line}\n".encode())
            answer = _answer(connection)
    except OSError as error:
        raise LabError(
            f"the device server does not answer: {error.strerror or error}",
            "see `bluebridge ps` whether it runs",
        ) from error
    *lines, last = answer.splitlines()
    if last != "ok":
        raise UsageError(last.removeprefix("error: "), "see `bluebridge ps` for what there is")
    return lines


def _answer(connection: socket.socket) -> str:
    """Everything up to the line that ends an answer."""
    received = b""
    while len(received) < _LONGEST:
        last = received.rstrip(b"\n").rpartition(b"\n")[2]
        if received.endswith(b"\n") and (last == b"ok" or last.startswith(b"error: ")):
            return received.decode()
        data = connection.recv(_LONGEST)
        if not data:
            break
        received += data
    raise ConnectionError("it closed the connection")
