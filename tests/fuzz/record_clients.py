"""What the clients of the wire tests send, as inputs of `sockets`; part of `tests.fuzz.record`."""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Sequence
from functools import wraps
from typing import Any

from bluebridge.host_tools.vfio_user.connection import ServerConnection
from tests.fuzz import served
from tests.fuzz.sockets import FORMS, File, Kind
from tests.fuzz.steps import Step, encode
from tests.wire.server import ServerProcess

MOST_CLIENTS = 16
LONGEST_MESSAGE = 5000
POLLS = 3
"""Equal requests one after the other that are written down."""


class Wire:
    """What one test's clients did; `start` forgets it."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[int, int]] = {}
        """What is served and which function, by socket."""
        self.start()

    def start(self) -> None:
        """A new test."""
        self.steps: list[Step] = []
        self.kind: int | None = None
        self.clean = True
        self._numbers: dict[int, int] = {}

    def content(self) -> bytes:
        """An input, empty when nothing was sent."""
        if self.kind is None or not self.clean:
            return b""
        return bytes((self.kind, 0)) + b"".join(encode(FORMS, step) for step in self.steps)

    def listen(self) -> None:
        """Watch clients and servers."""
        _before(ServerProcess, "__init__", self._serves)
        _before(ServerConnection, "__init__", self._opens)
        _before(ServerConnection, "send", self._sends)
        _before(ServerConnection, "close", self._closes)
        _before(socket.socket, "shutdown", self._shuts)

    def _serves(self, _: object, module: str, words: Sequence[str], *more: object) -> None:
        texts = [str(word) for word in words]
        if module == "tests.wire.probe_device":
            kind, paths = served.PROBE, texts
        elif module == "tests.wire.endpoint_device":
            kind, paths = served.PUPPET, texts[:1]
        else:
            kind = served.kind_of(texts)
            options = ("--hca", "--ntb", "--dma")
            given = [pair for option in options for pair in _given(option, texts)]
            paths = [found[1] for text in given if (found := re.search("socket=([^,]+)", text))]
        self.functions |= {path: (kind, number) for number, path in enumerate(paths)}

    def _opens(self, client: ServerConnection, path: Any, *_: object) -> None:
        found = self.functions.get(os.fspath(path))
        if found is None or self.kind not in (None, found[0]):
            self.clean = False
            return
        self.kind = found[0]
        number = self._numbers[id(client)] = len(self._numbers) % MOST_CLIENTS
        self.steps.append(Step(Kind.OPEN, number, (found[1],)))

    def _sends(self, client: ServerConnection, data: bytes, fds: Sequence[int] = ()) -> None:
        number = self._numbers.get(id(client))
        if number is None:
            self.clean = False
        elif len(data) <= LONGEST_MESSAGE:
            kind = _kind(fds[0]) if fds else 0
            step = Step(Kind.SEND, number, (kind, len(fds)), bytes(data))
            if [_same(step, last) for last in self.steps[-POLLS:]] != [True] * POLLS:
                self.steps.append(step)

    def _closes(self, client: ServerConnection) -> None:
        number = self._numbers.get(id(client))
        if number is not None:
            self.steps.append(Step(Kind.CLOSE, number))

    def _shuts(self, which: socket.socket, how: int) -> None:
        last = next((step.function for step in reversed(self.steps)), 0)
        self.steps.append(Step(Kind.SHUTDOWN, last, (how,)))


def _same(step: Step, other: Step) -> bool:
    """Whether two messages differ in their numbers only, as of a client that polls."""
    return (step.function, step.numbers, step.data[2:]) == (
        other.function,
        other.numbers,
        other.data[2:],
    )


def _given(option: str, words: Sequence[str]) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words[:-1]) if word == option]


def _kind(fd: int) -> File:
    link = os.readlink(f"/proc/self/fd/{fd}")
    if "eventfd" in link:
        return File.EVENT
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode):
        return File.PIPE
    if stat.S_ISSOCK(mode):
        return File.SOCKET
    if not link.startswith("/memfd:"):
        return File.NULL
    return File.SMALL if os.fstat(fd).st_size <= 4096 else File.SEALED


def _before(cls: type, name: str, note: Any) -> None:
    original = getattr(cls, name)

    @wraps(original)
    def method(self: Any, *words: Any, **more: Any) -> Any:
        note(self, *words, **{key: value for key, value in more.items() if key == "fds"})
        return original(self, *words, **more)

    setattr(cls, name, method)
