"""The device server, which at SIGUSR1 tries what code that was taken over could try.

`python -m tests.wire.inside_sandbox FILE SOCKET ARGUMENTS...`: a file elsewhere, a listening socket
of another program, and the arguments of the server. One line for each attempt goes to standard
output: its name and how it ended. The last one is `end`.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from bluebridge.device.__main__ import main


def _attempts(file: Path, path: str, stream: socket.socket) -> dict[str, Callable[[], object]]:
    return {
        "read a file": file.read_bytes,
        "list its folder": lambda: os.listdir(file.parent),
        "connect": lambda: stream.connect(path),
        "open a socket": lambda: socket.socket(socket.AF_UNIX),
        "open a pair of datagram sockets": lambda: socket.socketpair(type=socket.SOCK_DGRAM),
    }


def _try(attempts: dict[str, Callable[[], object]]) -> None:
    for name, attempt in attempts.items():
        result = "done"
        try:
            attempt()
        except OSError as error:
            result = errno.errorcode[error.errno or 0]
        _tell(f"{name}: {result}")
    _tell("end")


def _tell(line: str) -> None:
    """Past `sys.stdout`, in whose `print` the signal may have come."""
    os.write(1, f"{line}\n".encode())


def _start(file: str, path: str, *arguments: str) -> int:
    stream = socket.socket(socket.AF_UNIX)
    attempts = _attempts(Path(file), path, stream)
    signal.signal(signal.SIGUSR1, lambda number, frame: _try(attempts))
    return main(list(arguments))


if __name__ == "__main__":
    sys.exit(_start(*sys.argv[1:]))
