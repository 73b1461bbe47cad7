"""The stream of the kernel's nbd module, and a block device over a socket pair."""

from __future__ import annotations

import errno
import random
import select
import socket
import struct
from collections.abc import Iterator

import pytest

from bluebridge.device.layout.net.rnbd import AccessMode, CachePolicy, IoFlag, Operation
from bluebridge.guest.protocols.rnbd.backend import RamBackend
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import ClientDevice, Done, PermitFree
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry
from bluebridge.guest.protocols.rnbd.engine.server import Export
from bluebridge.guest.protocols.rnbd.nbd.device import Handler, NbdDevice
from bluebridge.guest.protocols.rnbd.nbd.kernel import (
    flags_of,
    nested,
    pack_attributes,
    parse_attributes,
)
from bluebridge.guest.protocols.rnbd.nbd.stream import (
    REPLY,
    REPLY_MAGIC,
    REQUEST,
    REQUEST_MAGIC,
    Command,
    CommandFlag,
    NbdRequest,
    RequestStream,
    ServerFlag,
    StreamError,
)
from tests.models.rnbd.loopback import Loopback

SECTORS = 2048


def packed(request: NbdRequest, data: bytes = b"") -> bytes:
    return REQUEST.pack(REQUEST_MAGIC, *request) + data


def fed(stream: RequestStream, data: bytes, pieces: list[int]) -> list[tuple[NbdRequest, bytes]]:
    """Requests and their data of a stream in pieces; WRITEs of cookie 13 are skipped."""
    found: list[tuple[NbdRequest, bytes]] = []
    writing: tuple[NbdRequest, bytearray] | None = None
    while data:
        space = stream.space()
        count = min(pieces.pop(0) if pieces else len(data), len(space), len(data))
        space[:count], data = data[:count], data[count:]
        stream.filled(count)
        while stream.data_complete:
            if writing is not None:
                found.append((writing[0], bytes(writing[1])))
                writing = None
            request = stream.next()
            if request is None:
                break
            if request.command != Command.WRITE:
                found.append((request, b""))
            elif request.cookie == 13:
                stream.skip_data(request.length)
                found.append((request, b""))
            else:
                writing = request, bytearray(request.length)
                stream.take_data(memoryview(writing[1]))
    assert writing is None
    return found


@pytest.mark.parametrize("seed", range(50))
def test_a_stream_in_pieces(seed: int) -> None:
    """Every division of the same bytes gives the same requests, skipped data and long data too."""
    chance = random.Random(seed)
    expected = []
    for number in range(40):
        command = chance.choice((Command.READ, Command.WRITE, Command.FLUSH, Command.WRITE))
        length = 0 if command == Command.FLUSH else chance.choice((512, 4096, 40960))
        cookie = 13 if chance.random() < 0.2 else number + 100
        data = chance.randbytes(length) if command == Command.WRITE else b""
        expected.append(
            (NbdRequest(chance.randrange(3), command, cookie, number * 512, length), data)
        )
    stream = b"".join(packed(*item) for item in expected)
    pieces = [chance.choice((1, 5, 27, 28, 29, 700, 100000)) for _ in range(1000)]
    skipped = [(item, b"" if item.cookie == 13 else data) for item, data in expected]
    assert fed(RequestStream(), stream, pieces) == skipped
    assert fed(RequestStream(), stream, []) == skipped


def test_what_is_no_request() -> None:
    stream = RequestStream()
    space = stream.space()
    space[: REQUEST.size] = b"x" * REQUEST.size
    stream.filled(REQUEST.size)
    with pytest.raises(StreamError, match="0x78787878"):
        stream.next()


def test_what_the_kernel_is_told_of_a_device() -> None:
    plain = Geometry(8)
    assert flags_of(plain, AccessMode.RW) == ServerFlag.HAS_FLAGS
    assert flags_of(plain, AccessMode.RO) == ServerFlag.HAS_FLAGS | ServerFlag.READ_ONLY
    full = plain._replace(
        max_discard_sectors=1,
        max_write_zeroes_sectors=1,
        cache_policy=CachePolicy.WRITEBACK | CachePolicy.FUA,
    )
    assert flags_of(full, AccessMode.MIGRATION) == (
        ServerFlag.HAS_FLAGS
        | ServerFlag.SEND_FLUSH
        | ServerFlag.SEND_FUA
        | ServerFlag.SEND_TRIM
        | ServerFlag.SEND_WRITE_ZEROES
    )
    assert not flags_of(plain._replace(cache_policy=CachePolicy.FUA), AccessMode.RW) & 8


def test_attributes_of_netlink() -> None:
    inner = pack_attributes({1: struct.pack("=I", 5)})
    attributes = pack_attributes({2: b"nbd\0", 1: b"abc", nested(7): inner})
    assert len(attributes) == 8 + 8 + 4 + len(inner)
    assert parse_attributes(attributes) == {2: b"nbd\0", 1: b"abc", 7: inner}
    assert parse_attributes(b"\0\0\1\0") == {}


class Kernel:
    """The kernel's end: sends requests and takes replies, while the device's loop is turned."""

    def __init__(self, queue_depth: int = 4, seed: int = 0) -> None:
        self.socket, ours = socket.socketpair()
        self.socket.setblocking(False)
        self.loopback = Loopback(
            [Export("disk", RamBackend(SECTORS * 512))], queue_depth, seed, size=16384
        )
        self.loopback.open()
        self.device: ClientDevice = self.loopback.client.map("disk", AccessMode.RW, 0.0)
        self.loopback.pump()
        self.loopback.client.take_actions()
        self.handlers: dict[int, tuple[int, Handler]] = {}
        self.ended = 0
        self.received = b""
        client = self.loopback.client
        self.block = NbdDevice(client, self.device, ours, self, self.step, self.end)

    def register(self, fd: int, events: int, handler: Handler) -> None:
        """As `Loop.register`."""
        self.handlers[fd] = events, handler

    def unregister(self, fd: int) -> None:
        """As `Loop.unregister`."""
        del self.handlers[fd]

    def end(self) -> None:
        self.ended += 1

    def step(self) -> None:
        self.loopback.pump(self.actions)

    def actions(self) -> None:
        for action in self.loopback.client.take_actions():
            if isinstance(action, Done):
                self.block.done(action)
            elif isinstance(action, PermitFree):
                self.block.permit_free()

    def turn(self) -> bool:
        """One turn of the loop; False if nothing was ready."""
        poll = select.poll()
        for fd, (events, _) in self.handlers.items():
            poll.register(fd, events)
        ready = poll.poll(0)
        for fd, events in ready:
            if fd in self.handlers:
                self.handlers[fd][1](events)
        return bool(ready)

    def exchange(self, data: bytes) -> bytes:
        """Send requests, take replies until nothing moves any more."""
        moved = True
        while moved:
            moved = self.turn()
            if data:
                try:
                    data = data[self.socket.send(data) :]
                    moved = True
                except BlockingIOError:
                    pass
            try:
                more = self.socket.recv(1 << 20)
                self.received += more
                moved = moved or bool(more)
            except BlockingIOError:
                pass
        assert not data
        taken, self.received = self.received, b""
        return taken


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    """A block device in front of a client and a server; every permit comes back."""
    found = Kernel()
    yield found
    found.block.close()
    found.socket.close()
    assert found.loopback.transport.free == found.loopback.transport.depth


def replies(data: bytes, lengths: dict[int, int]) -> dict[int, tuple[int, bytes]]:
    """Errno and data by cookie; `lengths` are those of the reads."""
    found = {}
    while data:
        magic, wrong, cookie = REPLY.unpack_from(data)
        assert magic == REPLY_MAGIC and cookie not in found
        length = 0 if wrong else lengths.get(cookie, 0)
        found[cookie] = wrong, data[REPLY.size : REPLY.size + length]
        data = data[REPLY.size + length :]
    return found


def test_more_requests_than_permits(kernel: Kernel) -> None:
    """Sixty writes, a flush and sixty reads at once, with four permits."""
    data = [bytes([number]) * 16384 for number in range(60)]
    sent = b"".join(
        packed(NbdRequest(0, Command.WRITE, number, number * 16384, 16384), data[number])
        for number in range(60)
    )
    assert replies(kernel.exchange(sent), {}) == dict.fromkeys(range(60), (0, b""))
    reads = {
        number: NbdRequest(0, Command.READ, number, number * 16384, 16384) for number in range(60)
    }
    flush = packed(NbdRequest(0, Command.FLUSH, 1000, 0, 0))
    answer = kernel.exchange(flush + b"".join(packed(read) for read in reads.values()))
    found = replies(answer, dict.fromkeys(reads, 16384))
    assert found.pop(1000) == (0, b"")
    assert found == {number: (0, data[number]) for number in range(60)}


def test_operations_without_data(kernel: Kernel) -> None:
    before = len(kernel.loopback.transport.seen)
    requests = [
        NbdRequest(0, Command.TRIM, 1, 4096, 8192),
        NbdRequest(CommandFlag.NO_HOLE, Command.WRITE_ZEROES, 2, 512, 1024),
        NbdRequest(CommandFlag.FUA, Command.WRITE_ZEROES, 3, 512, 1024),
    ]
    found = replies(kernel.exchange(b"".join(map(packed, requests))), {})
    assert found == {1: (0, b""), 2: (0, b""), 3: (0, b"")}
    seen = map(messages.parse_io, kernel.loopback.transport.seen[before:])
    assert sorted((item.operation, item.rw >> 8, item.sector, item.size) for item in seen) == [
        (Operation.DISCARD, 0, 8, 8192),
        (Operation.WRITE_ZEROES, 0, 1, 1024),
        (Operation.WRITE_ZEROES, IoFlag.FUA >> 8, 1, 1024),
    ]


def test_requests_that_are_refused(kernel: Kernel) -> None:
    """Too long, unknown, beyond the end: an error each, and the stream goes on."""
    long = 16384 + 512
    sent = packed(NbdRequest(0, Command.WRITE, 1, 0, long), bytes(long))
    sent += packed(NbdRequest(0, 9, 2, 0, 0))
    sent += packed(NbdRequest(0, Command.READ, 3, SECTORS * 512, 512))
    sent += packed(NbdRequest(0, Command.READ, 4, 0, 512))
    assert replies(kernel.exchange(sent), {4: 512}) == {
        1: (errno.EINVAL, b""),
        2: (errno.EINVAL, b""),
        3: (errno.EIO, b""),
        4: (0, bytes(512)),
    }


def test_without_a_path_requests_fail(kernel: Kernel) -> None:
    kernel.loopback.link_down()
    sent = packed(NbdRequest(0, Command.WRITE, 1, 0, 512), bytes(512))
    sent += packed(NbdRequest(0, Command.READ, 2, 0, 512))
    assert replies(kernel.exchange(sent), {}) == {1: (errno.EIO, b""), 2: (errno.EIO, b"")}
    kernel.loopback.link_up()
    kernel.step()
    again = kernel.exchange(packed(NbdRequest(0, Command.READ, 3, 0, 512)))
    assert replies(again, {3: 512}) == {3: (0, bytes(512))}


@pytest.mark.parametrize("end", ["disconnect", "hang up", "noise", "half a write"])
def test_the_end_of_a_device(kernel: Kernel, end: str) -> None:
    """Whatever ends it, it ends once and gives everything back."""
    sent = {
        "disconnect": packed(NbdRequest(0, Command.DISC, 0, 0, 0)) * 2,
        "hang up": b"",
        "noise": b"no request at all, 28 bytes!",
        "half a write": packed(NbdRequest(0, Command.WRITE, 1, 0, 512), bytes(100)),
    }[end]
    kernel.socket.send(sent)
    if end in ("hang up", "half a write"):
        kernel.turn()
        kernel.socket.close()
    while kernel.handlers:
        assert kernel.turn()
    assert kernel.ended == 1 and kernel.block.idle
