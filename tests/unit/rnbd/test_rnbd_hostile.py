"""A server of RNBD whose client sends what no client should."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import AccessMode, MessageType, Operation
from bluebridge.guest.protocols.rnbd.backend import RamBackend
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.server import Export
from bluebridge.guest.protocols.rtrs.engine.actions import Direction, SessionDown, SessionUp
from tests.models.rnbd.loopback import SESSION, Loopback

SECTORS = 64
READ, WRITE = Direction.READ, Direction.WRITE


class Peer:
    """Sends single messages; device 0 is open for writing, device 1 read-only."""

    def __init__(self) -> None:
        exports = [Export(name, RamBackend(SECTORS * 512)) for name in ("disk", "other")]
        self.loopback = Loopback(exports)
        for name, mode in (("disk", AccessMode.RW), ("other", AccessMode.RO)):
            assert self.ask(READ, 56, messages.pack_open(name, mode)) == 0

    def ask(self, direction: Direction, length: int, user: bytes) -> int:
        return self.loopback.transport.serve(self.loopback.server, 0, direction, length, user)

    def io(
        self,
        operation: int,
        sector: int,
        size: int,
        *,
        device: int = 0,
        length: int | None = None,
        direction: Direction | None = None,
    ) -> int:
        """The answer to a request of the block layer; `length` of data is `size` unless given."""
        way = direction if direction is not None else (WRITE if operation == 1 else READ)
        user = messages.pack_io(device, sector, operation, size)
        return self.ask(way, size if length is None else length, user)

    @property
    def disk(self) -> bytes:
        backend = self.loopback.server.exports["/disk"].backend
        data = bytearray(SECTORS * 512)
        backend.read(0, memoryview(data))
        return bytes(data)


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A client that says anything; what it said left the disk and the other client alone."""
    client = Peer()
    yield client
    assert client.disk == bytes(SECTORS * 512)
    assert client.io(Operation.READ, 0, 512) == 0


@pytest.mark.parametrize(
    ("operation", "sector", "size", "wrong"),
    [
        (Operation.READ, SECTORS, 512, errno.EIO),
        (Operation.READ, SECTORS - 1, 1024, errno.EIO),
        (Operation.WRITE, SECTORS - 1, 1024, errno.EIO),
        (Operation.WRITE, (1 << 64) - 1, 512, errno.EIO),
        (Operation.READ, 1 << 55, 512, errno.EIO),
        (Operation.READ, 0, 100, errno.EINVAL),
        (6, 0, 512, errno.EINVAL),
        (0xFF, 0, 0, errno.EINVAL),
    ],
)
def test_requests_beyond_the_device(
    peer: Peer, operation: int, sector: int, size: int, wrong: int
) -> None:
    assert peer.io(operation, sector, size) == wrong


@pytest.mark.parametrize("operation", [Operation.DISCARD, Operation.WRITE_ZEROES])
def test_changes_without_data_beyond_the_device(peer: Peer, operation: Operation) -> None:
    huge = 0xFFFFFE00
    assert peer.io(operation, 0, huge, length=0, direction=WRITE) == errno.EIO
    assert peer.io(operation, SECTORS - 1, 1024, length=0, direction=WRITE) == errno.EIO
    assert peer.io(operation, 0, 512, length=512, direction=WRITE) == errno.EINVAL


def test_data_of_another_length_or_direction(peer: Peer) -> None:
    assert peer.io(Operation.READ, 0, 1024, length=512) == errno.EINVAL
    assert peer.io(Operation.READ, 0, 512, length=0) == errno.EINVAL
    assert peer.io(Operation.WRITE, 0, 512, length=1024) == errno.EINVAL
    assert peer.io(Operation.WRITE, 0, 512, direction=READ) == errno.EINVAL
    assert peer.io(Operation.READ, 0, 512, direction=WRITE) == errno.EINVAL
    assert peer.io(Operation.FLUSH, 0, 512) == errno.EINVAL
    assert peer.io(Operation.FLUSH, (1 << 64) - 1, 0) == 0


def test_devices_that_are_not_open(peer: Peer) -> None:
    for device in (2, 77, 0xFFFFFFFF):
        assert peer.io(Operation.READ, 0, 512, device=device) == errno.ENOTCONN
        assert peer.ask(WRITE, 0, messages.pack_close(device)) == 0


@pytest.mark.parametrize("operation", list(Operation))
def test_a_read_only_device_takes_no_change(peer: Peer, operation: Operation) -> None:
    moves = operation in (Operation.READ, Operation.WRITE)
    size = 0 if operation == Operation.FLUSH else 512
    found = peer.io(operation, 0, size, device=1, length=size if moves else 0)
    assert found == (0 if operation in (Operation.READ, Operation.FLUSH) else errno.EPERM)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\4",
        bytes(2),
        bytes([MessageType.IO, 0, 0, 0]),
        messages.pack_io(0, 0, 0, 512)[:23],
        messages.pack_close(0)[:7],
        messages.pack_session(MessageType.SESS_INFO, 2)[:35],
        messages.pack_session(MessageType.SESS_INFO_RSP, 2),
        messages.pack_open("disk", AccessMode.RW)[:-1],
        bytes([MessageType.OPEN_RSP, 0]) + bytes(54),
        bytes([200, 1, 0, 0]) + bytes(60),
    ],
)
def test_messages_that_are_too_short_or_none(peer: Peer, message: bytes) -> None:
    assert peer.ask(READ, 512, message) == errno.EINVAL
    assert peer.loopback.lines


def test_names_without_an_end_or_in_other_letters(peer: Peer) -> None:
    user = bytearray(messages.pack_open("x", AccessMode.RW))
    rnbd.OPEN.set(user, "dev_name", b"a" * rnbd.NAME_BYTES)
    assert peer.ask(READ, 56, bytes(user)) == errno.EINVAL
    rnbd.OPEN.set(user, "dev_name", b"\xff\xfe".ljust(rnbd.NAME_BYTES, b"\0"))
    assert peer.ask(READ, 56, bytes(user)) == errno.ENOENT


def test_answers_that_have_no_room(peer: Peer) -> None:
    """Nothing is opened for who could not be told its number."""
    opened = len(next(iter(peer.loopback.server.sessions)).opened())
    for direction, length in ((READ, 55), (READ, 0), (WRITE, 56)):
        assert peer.ask(direction, length, messages.pack_open("/disk", AccessMode.RO)) == 22
        introduction = messages.pack_session(MessageType.SESS_INFO, 2)
        assert peer.ask(direction, min(length, 35), introduction) == errno.EINVAL
    assert len(next(iter(peer.loopback.server.sessions)).opened()) == opened


def test_a_session_that_does_not_exist(peer: Peer) -> None:
    server = peer.loopback.server
    server.handle(SessionDown(SESSION), 0.0)
    assert server.exports["/disk"].writers == 0
    assert peer.io(Operation.READ, 0, 512) == errno.ENODEV
    server.handle(SessionDown(SESSION), 0.0)
    server.handle(SessionUp(SESSION, "again"), 0.0)
    assert peer.ask(READ, 56, messages.pack_open("disk", AccessMode.RW)) == 0


@pytest.mark.parametrize("seed", range(40))
def test_noise(peer: Peer, seed: int) -> None:
    """Random messages get an answer, whatever they are; those that could change the disk do not."""
    noise = random.Random(seed)
    for _ in range(200):
        length = noise.choice((0, 1, 4, 8, 24, 32, 36, 264, 300))
        user = bytearray(noise.randbytes(length))
        if length > 2:
            user[:2] = noise.choice((0, 2, 4, 4, 4, 5, 9)).to_bytes(2, "little")
        if length >= 24 and user[0] == MessageType.IO:
            user[4:8] = noise.choice((0, 1, 2, 9)).to_bytes(4, "little")
            user[16] = noise.choice((0, 2, 6, 7))
        if user[:1] == bytes([MessageType.CLOSE]):
            user[4:8] = b"\xff" * len(user[4:8])
        answer = peer.ask(noise.choice((READ, WRITE)), noise.choice((0, 36, 56, 512)), bytes(user))
        assert 0 <= answer < 512
