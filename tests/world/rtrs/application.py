"""The layers above client and server: requests, and a store that finds torn and lost writes."""

from __future__ import annotations

import errno
import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    Closed,
    Direction,
    Finished,
    LinkChanged,
    Opened,
    Serve,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.engine.interface import Permit
from tests.world.rtrs.machine import ClientMachine, ServerMachine

SECTOR = 64
SECTORS = 96
EIO = 5
_USER = struct.Struct("<IHHB")
_CONTENT = struct.Struct("<II")


class Lost(AssertionError):
    """I/O that was lost, doubled, torn or misdirected; or something that leaked."""


def content(tag: int, sector: int) -> bytes:
    """Return what write `tag` leaves in a sector."""
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
    """The store that outlives a server: sectors, and the fate of each write."""

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


LINGER = 90.0
"""So long a write that has failed may still come to be executed."""
_EXPECTED = {0, EIO, errno.ECONNABORTED}


@dataclass
class Truth:
    """The writes each sector may contain: by write, the time of its failure, or None if it was told
    to have succeeded."""

    possible: list[dict[int, float | None]] = field(
        default_factory=lambda: [{0: None} for _sector in range(SECTORS)]
    )
    last_tag: int = 0

    def written(self, tag: int, sector: int, now: float) -> None:
        """A write has succeeded: only those that failed a short while ago may still come."""
        old = self.possible[sector]
        self.possible[sector] = {
            other: failed
            for other, failed in old.items()
            if failed is not None and failed + LINGER > now
        } | {tag: None}

    def unknown(self, tag: int, sector: int, now: float) -> None:
        """A write has failed, or nobody was there to be told."""
        self.possible[sector][tag] = now

    def check(self, data: bytes, sector: int) -> None:
        """Content that was read. Raises `Lost`."""
        tag, place = parse_content(data)
        if place != sector or tag not in self.possible[sector]:
            raise Lost(f"sector {sector} has write {tag} of sector {place}: a write was lost")


@dataclass
class Job:
    """A request in flight."""

    tag: int
    direction: Direction
    sector: int
    count: int
    permit: Permit


class Application:
    """Keeps some requests in flight; no two touch a sector at the same time."""

    def __init__(
        self, truth: Truth, disk: Disk, source: random.Random, busy: Callable[[], bool]
    ) -> None:
        self.machine: ClientMachine | None = None
        self.opened: Opened | None = None
        self.closed = False
        self.links: list[bool] = []
        self.finished = 0
        self.failures = 0
        self.sent: dict[int, int] = {}
        self._truth = truth
        self._disk = disk
        self._random = source
        self._busy = busy
        self._jobs: dict[int, Job] = {}
        self._locked: set[int] = set()
        self._pause = source.choice((0.15, 0.5, 2.0))

    def __call__(self, action: Action) -> None:
        if isinstance(action, Finished):
            self._finish(action)
        elif isinstance(action, Opened):
            if action.path is None:
                self.opened = action
        elif isinstance(action, LinkChanged):
            if self.links[-1:] == [action.up]:
                raise Lost(f"the link is {action.up} twice")
            self.links.append(action.up)
        elif isinstance(action, Closed):
            self.closed = True

    @property
    def idle(self) -> bool:
        return not self._jobs

    def run(self, count: int) -> None:
        """Begin `count` chains of requests, one after another in each."""
        self._pause *= count
        for _chain in range(count):
            self._later()

    def read_all(self) -> None:
        for sector in range(0, SECTORS, 8):
            self._clock_run(lambda sector=sector: self._begin(Direction.READ, sector, 8))  # type: ignore[misc]

    def died(self) -> None:
        """The client has died: what was in flight is unknown."""
        assert self.machine is not None
        for job in self._jobs.values():
            self._give_up(job)
        self._jobs.clear()

    def _clock_run(self, start: Callable[[], bool]) -> None:
        machine = self.machine
        assert machine is not None
        for _attempt in range(100):
            if start() and machine.clock.run(lambda: self.idle, 200.0) and not self._last_failed:
                return
            machine.clock.run(lambda: False, 1.0)
        raise Lost("a sector cannot be read although everything works")

    _last_failed = False

    def _later(self) -> None:
        assert self.machine is not None
        pause = self._random.random() * self._pause
        self.machine.clock.after(pause, self._next)

    def _next(self) -> None:
        machine = self.machine
        assert machine is not None
        if not machine.alive or not self._busy():
            return
        if machine.hangs:
            self._later()
            return
        direction = self._random.choice((Direction.READ, Direction.WRITE))
        count = self._random.randint(1, 12)
        sector = self._random.randrange(SECTORS - count)
        if not self._begin(direction, sector, count):
            self._later()

    def _begin(self, direction: Direction, sector: int, count: int) -> bool:
        machine, extent = self.machine, set(range(sector, sector + count))
        assert machine is not None
        if extent & self._locked:
            return False
        admin = self._random.random() < 0.05
        permit = machine.session.get_permit(admin=admin, cpu=self._random.randrange(4))
        if permit is None:
            return False
        self._truth.last_tag += 1
        tag = self._truth.last_tag
        data = machine.slots.data[permit.slot]
        data[:] = b"\xee" * len(data)
        if direction is Direction.WRITE:
            whole = b"".join(content(tag, sector + index) for index in range(count))
            data[: len(whole)] = whole
        user = user_message(tag, sector, count, direction, self._random.choice((0, 15, 80)))
        failed = machine.session.request(direction, permit, user, count * SECTOR, machine.clock.now)
        if failed:
            if failed != errno.ECONNABORTED:
                raise Lost(f"a request was refused with {failed}")
            machine.session.put_permit(permit)
            return False
        self._jobs[permit.slot] = Job(tag, direction, sector, count, permit)
        self._locked |= extent
        machine.perform()
        return True

    def _finish(self, finished: Finished) -> None:
        machine = self.machine
        assert machine is not None
        job = self._jobs.pop(finished.slot, None)
        if job is None:
            raise Lost(f"slot {finished.slot} is finished twice")
        if finished.errno not in _EXPECTED:
            raise Lost(f"request {job.tag} ended with {finished.errno}")
        self.finished += 1
        self._last_failed = finished.errno != 0
        self._locked -= set(range(job.sector, job.sector + job.count))
        if finished.errno:
            self.failures += 1
            self._give_up(job)
        else:
            self._check(job, bytes(machine.slots.data[finished.slot]))
        machine.session.put_permit(job.permit)
        self._later()

    def _check(self, job: Job, data: bytes) -> None:
        assert self.machine is not None
        if not self._disk.executed[job.tag]:
            raise Lost(f"request {job.tag} succeeded, but was never served")
        self._disk.answered.add(job.tag)
        for index in range(job.count):
            if job.direction is Direction.WRITE:
                self._truth.written(job.tag, job.sector + index, self.machine.clock.now)
            else:
                part = data[index * SECTOR : (index + 1) * SECTOR]
                self._truth.check(part, job.sector + index)

    def _give_up(self, job: Job) -> None:
        assert self.machine is not None
        self._disk.given_up.add(job.tag)
        if job.direction is Direction.WRITE:
            for sector in range(job.sector, job.sector + job.count):
                self._truth.unknown(job.tag, sector, self.machine.clock.now)
