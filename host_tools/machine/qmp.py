"""A small synchronous client of the QEMU Machine Protocol."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from bluebridge.host_tools.errors import LabError


class QmpError(LabError):
    """QEMU refused a command or did not answer it."""


class Qmp:
    """One connection to a QMP socket; not for use from two threads."""

    def __init__(self, connection: socket.socket, timeout: float = 30.0) -> None:
        """Take over a connected socket, read the greeting and leave negotiation mode."""
        self._socket = connection
        self._buffer = b""
        self._timeout = timeout
        self.events: list[dict[str, Any]] = []
        greeting = self._next(time.monotonic() + timeout)
        if "QMP" not in greeting:
            raise QmpError(f"no QMP greeting but {greeting!r}")
        self.command("qmp_capabilities")

    @classmethod
    def connect(cls, path: Path, timeout: float = 30.0) -> Qmp:
        """Connect to the socket at `path`, which must be listening."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return cls(connection, timeout)
        except (OSError, LabError):
            connection.close()
            raise

    def command(self, name: str, **arguments: Any) -> Any:
        """Run one command and return its result; events met on the way go to `events`.

        Raises `QmpError` when QEMU answers with an error, hangs up or takes too long. An argument's
        underscores become the dashes of QMP names.
        """
        request: dict[str, Any] = {"execute": name}
        if arguments:
            request["arguments"] = {key.replace("_", "-"): v for key, v in arguments.items()}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise QmpError(f"QEMU closed its control socket before `{name}`") from error
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._next(deadline)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise QmpError(f"QEMU refused `{name}`: {answer['error'].get('desc')}")
            elif "return" in answer:
                return answer["return"]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _next(self, deadline: float) -> dict[str, Any]:
        """Return the next message, one JSON object per line. Raises `QmpError` at `deadline`."""
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise QmpError("QEMU does not answer on its control socket")
            self._socket.settimeout(remaining)
            try:
                chunk = self._socket.recv(65536)
            except TimeoutError:
                continue
            except OSError as error:
                raise QmpError(f"QEMU closed its control socket: {error.strerror}") from error
            if not chunk:
                raise QmpError("QEMU closed its control socket")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise QmpError(f"QEMU sent a line that is not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise QmpError(f"QEMU sent no object: {line[:80]!r}")
        return message
