"""Clients of served functions: connections, messages with descriptors, ends at any moment."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import IntEnum
from pathlib import Path

from bluebridge.device.pyvfio_user.constants import HEADER as HEADER_FORM
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from tests.fuzz.served import Served
from tests.fuzz.steps import BytesLeft, Form, Forms, Step, decode
from tests.fuzz.timed_host import timed

HEADER = 2
VERSION = b"\0\0\1\0" + b'{"capabilities":{"max_msg_fds":8}}\0'
INFO = (16).to_bytes(4, "little") + bytes(12)
_INFO = VfioUserCommand.GET_INFO
TURNS = 6
"""Looks of the loop at its sockets after each step."""
LAST_TURNS = 40
MOST_FILES = 8
MEMORY = 16 << 20
PAGE = 4096
CLOSING_SECONDS = 5.0
"""Files are closed in threads; so long may that take on a busy machine."""


class Kind(IntEnum):
    """What a step does with the client that is its function's number."""

    SEND = 0
    OPEN = 1
    CLOSE = 2
    SHUTDOWN = 3
    READ = 4
    TURN = 5


FORMS: Forms = {
    Kind.SEND: Form((1, 1), data=True),
    Kind.OPEN: Form((1,)),
    Kind.CLOSE: Form(),
    Kind.SHUTDOWN: Form((1,)),
    Kind.READ: Form((1,)),
    Kind.TURN: Form((1,)),
}
"""Numbers of each: kind of descriptors and how many; the served function; how; whether replies are
read from now on; how often."""


class File(IntEnum):
    """Kinds of descriptors."""

    SEALED = 0
    SMALL = 1
    UNSEALED = 2
    EVENT = 3
    PIPE = 4
    NULL = 5
    SOCKET = 6


def _memory(size: int, seals: int) -> int:
    fd = os.memfd_create("fuzz", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def _pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


_FILES: dict[int, Callable[[], int]] = {
    File.SEALED: lambda: _memory(MEMORY, fcntl.F_SEAL_SHRINK),
    File.SMALL: lambda: _memory(PAGE, fcntl.F_SEAL_SHRINK),
    File.UNSEALED: lambda: _memory(MEMORY, 0),
    File.EVENT: lambda: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC),
    File.PIPE: _pipe,
    File.NULL: lambda: os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC),
    File.SOCKET: lambda: socket.socket(socket.AF_UNIX).detach(),
}


class Clients:
    """Up to 16 of them, all on `served`."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._clients: dict[int, socket.socket] = {}
        self._deaf: set[int] = set()
        self._actions: dict[int, Callable[[Step], None]] = {
            Kind.SEND: self._send,
            Kind.OPEN: self._open,
            Kind.CLOSE: self._close,
            Kind.SHUTDOWN: self._shutdown,
            Kind.READ: self._read,
            Kind.TURN: lambda step: self.turn(step.numbers[0] % LAST_TURNS),
        }

    def take(self, step: Step) -> None:
        """Do a step; what the server makes of it follows."""
        with suppress(OSError):
            self._actions[step.kind](step)
        self.turn(TURNS)

    def turn(self, times: int) -> None:
        """Let the server look at its sockets; clients that are not deaf read their replies."""
        for _ in range(times):
            timed(lambda: self._served.loop.step(0.0))()
            for number, client in self._clients.items():
                if number not in self._deaf:
                    with suppress(OSError):
                        client.recv(1 << 20)

    def close(self) -> None:
        """All go."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _open(self, step: Step) -> None:
        self._close(step)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.setblocking(False)
        self._clients[step.function] = client
        paths = self._served.paths
        client.connect(str(paths[step.numbers[0] % len(paths)]))

    def _close(self, step: Step) -> None:
        client = self._clients.pop(step.function, None)
        if client is not None:
            client.close()

    def _shutdown(self, step: Step) -> None:
        client = self._clients.get(step.function)
        if client is not None:
            client.shutdown((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)[step.numbers[0] % 3])

    def _read(self, step: Step) -> None:
        (self._deaf.discard if step.numbers[0] & 1 else self._deaf.add)(step.function)

    def _send(self, step: Step) -> None:
        client = self._clients.get(step.function)
        if client is None:
            return
        kind, count = step.numbers
        fds: list[int] = []
        try:
            for _ in range(count % (MOST_FILES + 1)):
                fds.append(_FILES[kind % len(_FILES)]())
            if fds:
                socket.send_fds(client, [step.data], fds)
            else:
                client.send(step.data)
        finally:
            for fd in fds:
                os.close(fd)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def no_leak() -> Iterator[None]:
    """As many descriptors are open afterwards as before, soon."""
    before = _open_files()
    yield
    until = time.monotonic() + CLOSING_SECONDS
    while _open_files() != before and time.monotonic() < until:
        time.sleep(0.0005)
    assert _open_files() == before, f"{_open_files() - before} descriptors are left open"


def _is_served(served: Served, path: Path) -> None:
    """A client that does nothing wrong is answered."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.connect(str(path))
        for command, body in ((VfioUserCommand.VERSION, VERSION), (_INFO, INFO)):
            client.send(HEADER_FORM.pack(1, command, HEADER_FORM.size + len(body), 0, 0) + body)
            reply = _reply(served, client)
            assert HEADER_FORM.unpack_from(reply)[3] == 1, f"{path.name} answers {reply!r}"


def _reply(served: Served, client: socket.socket) -> bytes:
    for _ in range(LAST_TURNS):
        served.loop.step(0.0)
        with suppress(BlockingIOError):
            return client.recv(1 << 16)
    raise AssertionError("no answer")


def sockets(data: bytes) -> None:
    """Clients that do as the fuzzer says, then one that does nothing wrong."""
    left = BytesLeft(data)
    header = left.take(HEADER).ljust(HEADER, b"\0")
    with no_leak(), tempfile.TemporaryDirectory(prefix="fuzz-") as folder, ExitStack() as stack:
        served = Served(header[0], header[1], Path(folder))
        stack.callback(served.close)
        clients = Clients(served)
        stack.callback(clients.close)
        for step in decode(FORMS, left):
            clients.take(step)
        clients.close()
        clients.turn(LAST_TURNS)
        for path in served.paths:
            _is_served(served, path)


TARGETS: dict[str, Callable[[bytes], None]] = {"sockets": sockets}
