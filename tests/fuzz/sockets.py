"""Clients of the sockets that others write to: connections, messages, ends at any moment."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.steps import BytesLeft, Form, Forms, Step, decode
from tests.fuzz.timed_host import timed
from tests.models.descriptors import KINDS
from tests.models.sockets import SOCKETS, Served, Socket, no_leak

HEADER = 2
TURNS = 6
"""Looks of the loop at its sockets after each step."""
LAST_TURNS = 40
MOST_FILES = 8


class Kind(IntEnum):
    """The action of a step on the client that is its function's number."""

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


class Clients:
    """Up to 16 of them on the sockets `paths`; `turn` lets the server look at these."""

    def __init__(self, paths: Sequence[Path], turn: Callable[[], None]) -> None:
        self._paths = paths
        self._turn = turn
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
            self._turn()
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
        client.connect(str(self._paths[step.numbers[0] % len(self._paths)]))

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
                fds.append(KINDS[kind % len(KINDS)]())
            if fds:
                socket.send_fds(client, [step.data], fds)
            else:
                client.send(step.data)
        finally:
            for fd in fds:
                os.close(fd)


def attack(row: Socket, how: int, steps: Iterable[Step], *, stay: bool = False) -> None:
    """Clients take the steps; what must hold of the row holds while they `stay`, or afterwards."""
    with no_leak(), TemporaryDirectory(prefix="fuzz-") as folder, ExitStack() as stack:
        served = Served(row, Path(folder), how)
        stack.callback(served.close)
        clients = Clients(served.paths, timed(lambda: served.loop.step(0.0)))
        stack.callback(clients.close)
        for step in steps:
            clients.take(step)
        if not stay:
            clients.close()
            clients.turn(LAST_TURNS)
        served.assert_good_clients_are_answered()


def sockets(data: bytes) -> None:
    """Clients of one of the sockets do as the fuzzer says."""
    left = BytesLeft(data)
    kind, how = left.take(HEADER).ljust(HEADER, b"\0")
    attack(SOCKETS[kind % len(SOCKETS)], how, decode(FORMS, left))


TARGETS: dict[str, Callable[[bytes], None]] = {"sockets": sockets}
