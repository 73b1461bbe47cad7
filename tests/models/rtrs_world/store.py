"""The layer above a server: a block store that finds torn and misdirected writes.

A sector's content names the write that made it and the sector itself, over its whole length.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from dataclasses import dataclass, field

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    Direction,
    Serve,
    SessionDown,
    SessionUp,
)
from tests.models.rtrs_world.machines import ServerMachine

SECTOR = 64
SECTORS = 96
EIO = 5
_USER = struct.Struct("<IHHB")
_CONTENT = struct.Struct("<II")


class Lost(AssertionError):
    """I/O that was lost, doubled, torn or misdirected; or something that leaked."""


def content(tag: int, sector: int) -> bytes:
    """What write `tag` leaves in a sector."""
    return _CONTENT.pack(tag, sector) * (SECTOR // _CONTENT.size)


def parse_content(data: bytes) -> tuple[int, int]:
    """Tag and sector of a sector's content. Raises `Lost` for one that is torn."""
    tag, sector = _CONTENT.unpack_from(data)
    if data != content(tag, sector):
        raise Lost(f"a torn sector: {data.hex()}")
    return tag, sector


def user_message(tag: int, sector: int, count: int, direction: Direction, padding: int) -> bytes:
    return _USER.pack(tag, sector, count, direction) + bytes(padding)


@dataclass
class Disk:
    """What outlives a server: sectors, and what is known of each write."""

    data: bytearray = field(
        default_factory=lambda: bytearray(b"".join(content(0, n) for n in range(SECTORS)))
    )
    executed: Counter[int] = field(default_factory=Counter)
    given_up: set[int] = field(default_factory=set)
    """Writes that their client was told have failed, or whose client has died: what they leave is
    undefined. For the sake of the other checks they are executed as they were asked for."""

    answered: set[int] = field(default_factory=set)
    """Requests that their client was told have succeeded."""

    ignore_writes: bool = False

    def sectors(self, first: int, count: int) -> bytes:
        return bytes(self.data[first * SECTOR : (first + count) * SECTOR])


class Store:
    """Serves one server from a disk, with pauses and errors."""

    def __init__(self, disk: Disk, source: random.Random) -> None:
        self.machine: ServerMachine | None = None
        self.sessions: set[int] = set()
        self._disk = disk
        self._random = source
        self._slow = source.choice((0.005, 0.05, 3.0))
        self._busy: dict[tuple[int, int], int] = {}

    def __call__(self, action: Action) -> None:
        if isinstance(action, SessionUp):
            self.sessions.add(action.session)
        elif isinstance(action, SessionDown):
            self.sessions.remove(action.session)
            if any(session == action.session for session, _chunk in self._busy):
                raise Lost("a session ended while it was served")
        elif isinstance(action, Serve):
            self._serve(action)

    def _serve(self, serve: Serve) -> None:
        place = serve.session, serve.chunk
        if serve.session not in self.sessions:
            raise Lost("a request of a session that is not up")
        if place in self._busy:
            raise Lost(f"chunk {place} is served twice at a time")
        self._busy[place] = serve.operation
        machine = self.machine
        assert machine is not None
        tag, first, count, direction = _USER.unpack_from(serve.user)
        if direction != serve.direction or serve.length != count * SECTOR:
            raise Lost(f"request {tag} arrived as another: {serve}")
        if tag in self._disk.answered:
            raise Lost(f"request {tag} is served again after its client was answered")
        data = bytes(machine.chunks.chunk(*place)[: serve.length])
        if direction == Direction.WRITE and tag in self._disk.given_up:
            data = b"".join(content(tag, first + index) for index in range(count))
        if direction == Direction.WRITE:
            for index in range(count):
                found = parse_content(data[index * SECTOR : (index + 1) * SECTOR])
                if found != (tag, first + index):
                    raise Lost(f"write {tag} to {first + index} brings {found}")
        delay = self._random.random() * self._random.choice((0.001, self._slow))
        machine.clock.after(delay, lambda: self._end(machine, serve, data))

    def _end(self, machine: ServerMachine, serve: Serve, data: bytes) -> None:
        del self._busy[serve.session, serve.chunk]
        if not machine.alive:
            return
        tag, first, count, _direction = _USER.unpack_from(serve.user)
        chunk = machine.chunks.chunk(serve.session, serve.chunk)
        failed = EIO if self._random.random() < 0.03 else 0
        if serve.direction is Direction.READ:
            chunk[: serve.length] = self._disk.sectors(first, count)
        elif bytes(chunk[: serve.length]) != data and tag not in self._disk.given_up:
            raise Lost(f"the data of write {tag} changed while it was served")
        elif not failed and not self._disk.ignore_writes:
            self._disk.data[first * SECTOR : (first + count) * SECTOR] = data
        if not failed:
            self._disk.executed[tag] += 1
        machine.tell(lambda now: machine.server.respond(serve.operation, failed, now))
