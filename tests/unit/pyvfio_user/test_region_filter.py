"""Regions served without the library: runs of stores, registers, limits, other messages."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from typing import ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.pyvfio_user import _region_filter
from bluebridge.device.pyvfio_user._callbacks import Callbacks
from bluebridge.device.pyvfio_user._files import Closer
from bluebridge.device.pyvfio_user._library import Library
from bluebridge.device.pyvfio_user._message_filter import Verdict
from bluebridge.device.pyvfio_user._region_filter import RegionFilter
from bluebridge.device.pyvfio_user._regions import BulkRegion, LineStores, RegisterRegion

NO_REPLY = 0x10
SIZE = 1 << 20


WIDE = 4 << 30


def _read(offset: int, length: int) -> bytes:
    """Bytes with the low byte of the offset; nothing at 0x66, which is a failure."""
    return b"" if offset == 0x66 else bytes([offset & 0xFF]) * length


class Wire:
    """A filter between two sockets, and the runs of stores that it served."""

    made: ClassVar[list[socket.socket]] = []
    """Sockets that are closed with their test."""

    def __init__(self) -> None:
        self.client, self.server = socket.socketpair()
        self.made.extend((self.client, self.server))
        self.runs: list[tuple[int, bytes, int]] = []
        self.complaints: list[str] = []
        self.regions = {
            2: BulkRegion(SIZE, _read, lambda *run: self.runs.append(run)),
            4: BulkRegion(WIDE, _read, lambda *run: self.runs.append(run)),
        }
        self.serve({})

    def serve(self, registers: dict[int, RegisterRegion]) -> None:
        """Have a filter with these registers, besides the windows."""
        complain = self.complaints.append
        self.filter = RegionFilter(
            *(self.server, lambda *_: False, lambda _: 0, complain, Closer()),
            self.regions,
            registers,
        )

    def write(self, offset: int, data: bytes, region: int = 2, flags: int = NO_REPLY) -> None:
        """A region write as the client sends it."""
        head = struct.pack("<HHIII", 1, 10, 32 + len(data), flags, 0)
        self.client.sendall(head + struct.pack("<QII", offset, region, len(data)) + data)


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """How many accesses are served together shall not depend on the machine."""
    monkeypatch.setattr(_region_filter, "TOGETHER_SECONDS", 3600.0)
    yield
    while Wire.made:
        Wire.made.pop().close()


def test_neighbours_are_joined() -> None:
    wire = Wire()
    for offset in (0, 8, 16, 32, 40, 36):
        wire.write(offset, bytes([offset]) * (8 if offset != 36 else 4))
    assert wire.filter.inspect() is Verdict.HANDLED
    assert [(offset, len(data), width) for offset, data, width in wire.runs] == [
        (0, 24, 8),
        (32, 16, 8),
        (36, 4, 4),
    ]
    assert wire.filter.inspect() is Verdict.IDLE


def test_messages_with_reply_or_of_other_regions_are_left_for_the_library() -> None:
    for region, flags, offset in ((0, NO_REPLY, 0), (0, 0, 0), (3, NO_REPLY, SIZE - 4)):
        wire = Wire()
        wire.write(0, bytes(8))
        wire.write(offset, b"12345678", region, flags)
        wire.write(64, bytes(8))
        assert wire.filter.inspect() is Verdict.HANDLED
        assert len(wire.runs) == 1
        assert wire.filter.inspect() is Verdict.PASS
        assert wire.filter.message[32:] == b"12345678"
        assert wire.filter.inspect() is Verdict.HANDLED


def test_an_incomplete_message_waits_for_its_rest() -> None:
    wire = Wire()
    wire.write(0, bytes(8))
    head = struct.pack("<HHIIIQII", 1, 10, 40, NO_REPLY, 0, 8, 2, 8)
    wire.client.sendall(head[:20])
    assert wire.filter.inspect() is Verdict.HANDLED
    assert wire.filter.inspect() is Verdict.IDLE
    wire.client.sendall(head[20:] + bytes(8))
    assert wire.filter.inspect() is Verdict.HANDLED
    assert len(wire.runs) == 2
    wire.client.close()
    assert wire.filter.inspect() is Verdict.DROP


@given(st.lists(st.tuples(st.integers(0, 64), st.binary(min_size=1, max_size=8))))
def test_runs_store_what_single_writes_would(writes: list[tuple[int, bytes]]) -> None:
    wire = Wire()
    expected, found = bytearray(128), bytearray(128)
    for offset, data in writes:
        wire.write(offset, data)
        expected[offset : offset + len(data)] = data
    while wire.filter.inspect() is Verdict.HANDLED:
        pass
    for offset, data, width in wire.runs:
        assert len(data) % width == 0
        found[offset : offset + len(data)] = data
    assert found == expected


def _ask(wire: Wire, command: int, body: bytes) -> tuple[int, bytes]:
    """A request and its reply: errno, body."""
    wire.client.sendall(struct.pack("<HHIII", 7, command, 16 + len(body), 0, 0) + body)
    assert wire.filter.inspect() is Verdict.HANDLED
    answer = wire.client.recv(65536)
    number, told, size, flags, error = struct.unpack_from("<HHIII", answer)
    assert (number, told, size, flags & 0xF) == (7, command, len(answer), 1)
    return error if flags & 0x20 else 0, answer[16:]


def test_a_region_of_four_gigabytes_is_served_without_the_library() -> None:
    wire = Wire()
    error, info = _ask(wire, 5, struct.pack("<IIIIQQ", 32, 0, 4, 0, 0, 0))
    assert (error, struct.unpack("<IIIIQQ", info)) == (0, (32, 3, 4, 0, WIDE, 0))
    where = struct.pack("<QII", WIDE - 8, 4, 8)
    assert _ask(wire, 9, where) == (0, where + b"\xf8" * 8)
    assert _ask(wire, 10, where + b"12345678") == (0, where)
    assert wire.runs == [(WIDE - 8, b"12345678", 8)]


def test_invalid_accesses_fail() -> None:
    wire = Wire()
    for offset, length in ((WIDE - 4, 8), (0, 0), (0, 1 << 20), (0x66, 4), ((1 << 64) - 4, 8)):
        assert _ask(wire, 9, struct.pack("<QII", offset, 4, length)) == (5, b"")
    assert _ask(wire, 10, struct.pack("<QII", 0, 4, 8) + b"short") == (5, b"")
    assert not wire.runs


class Registers:
    """Four registers of four bytes behind a filter; the last one fails."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.seen: list[tuple[int, bytes]] = []
        self.data = bytearray(16)

    def read(self, offset: int, length: int) -> bytes:
        """The register; at 8 fewer bytes than asked for."""
        if offset >= 12:
            raise PermissionError(errno.EPERM, "not this one")
        return bytes(self.data[offset : offset + length])[: 1 if offset == 8 else length]

    def write(self, offset: int, data: bytes) -> None:
        """Store, and record the number of runs of the windows before."""
        if data == b"quit":
            raise KeyboardInterrupt
        if offset >= 12:
            raise RuntimeError("not this one")
        self.data[offset : offset + len(data)] = data
        self.seen.append((len(self.wire.runs), data))


def _error(raised: BaseException) -> int:
    return getattr(raised, "errno", 0) or 5


def _registers(failed: Callable[[BaseException], int] = _error) -> tuple[Wire, Registers]:
    """A gate with registers, and these; `failed` says what a failure is answered with."""
    wire = Wire()
    registers = Registers(wire)
    region = RegisterRegion(16, registers.read, registers.write, failed)
    wire.serve({0: region, 2: region})
    return wire, registers


def test_slow_accesses_are_not_served_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_region_filter, "TOGETHER_SECONDS", 0.0)
    wire, registers = _registers()
    for _ in range(3):
        wire.write(4, b"1234", region=0)
    for served in (1, 2, 3):
        assert wire.filter.inspect() is Verdict.HANDLED
        assert len(registers.seen) == served
    assert wire.filter.inspect() is Verdict.IDLE


def test_registers_are_served_in_the_order_of_the_bus() -> None:
    wire, registers = _registers()
    wire.write(0, bytes(8))
    wire.write(4, b"1234", region=0)
    wire.write(8, bytes(8))
    wire.write(0, b"5678", region=0)
    assert wire.filter.inspect() is Verdict.HANDLED
    # Stores on both sides of an access to a register are not joined across it.
    assert registers.seen == [(1, b"1234"), (2, b"5678")]
    assert [offset for offset, _, _ in wire.runs] == [0, 8]
    assert wire.filter.inspect() is Verdict.IDLE


def test_registers_answer_and_fail_as_their_functions_do() -> None:
    wire, registers = _registers()
    where = struct.pack("<QII", 4, 0, 4)
    assert _ask(wire, 10, where + b"abcd") == (0, where)
    assert _ask(wire, 9, where) == (0, where + b"abcd")
    assert _ask(wire, 9, struct.pack("<QII", 12, 0, 4)) == (errno.EPERM, b"")
    assert _ask(wire, 9, struct.pack("<QII", 8, 0, 4)) == (errno.EIO, b"")
    assert _ask(wire, 10, struct.pack("<QII", 12, 0, 4) + b"1234") == (errno.EIO, b"")
    wire.write(12, b"1234", region=0)  # without a reply
    assert _ask(wire, 9, where) == (0, where + b"abcd")
    assert len(registers.seen) == 1


def test_an_invalid_access_is_left_for_the_library() -> None:
    for body in (
        struct.pack("<QII", 14, 0, 4),
        struct.pack("<QII", (1 << 64) - 2, 0, 4),
        struct.pack("<QII", 0, 0, 0),
        struct.pack("<QII", 0, 0, 4) + b"more",
        struct.pack("<QII", 0, 0, 8192),
    ):
        wire, _ = _registers()
        wire.client.sendall(struct.pack("<HHIII", 7, 9, 16 + len(body), 0, 0) + body)
        assert wire.filter.inspect() is Verdict.PASS


@pytest.mark.parametrize("length", [8193, 1 << 18, 1 << 31])
def test_the_library_gets_no_long_access(length: int) -> None:
    """Its reply would not fit into its socket, of which nobody takes it meanwhile."""
    wire, _ = _registers()
    for command in (9, 10):
        assert _ask(wire, command, struct.pack("<QII", 0, 0, length)) == (errno.EINVAL, b"")


def test_many_accesses_leave_time_for_other_sockets() -> None:
    wire, registers = _registers()
    for _ in range(100):
        wire.write(0, b"1234", region=0)
    looks = 0
    while wire.filter.inspect() is Verdict.HANDLED:
        looks += 1
        assert not wire.filter.more
    assert looks == 4
    assert len(registers.seen) == 100


def test_a_client_that_reads_no_replies_is_dropped() -> None:
    wire, _ = _registers()
    wire.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    request = struct.pack("<HHIIIQII", 7, 9, 32, 0, 0, 0, 0, 4)
    for _ in range(1000):
        wire.client.sendall(request)
        if (verdict := wire.filter.inspect()) is not Verdict.HANDLED:
            break
    assert verdict is Verdict.DROP


def test_no_access_is_carried_out_twice_whatever_a_function_raises() -> None:
    wire, registers = _registers(failed=_raise)
    for data in (b"1111", b"quit", b"2222"):
        wire.write(0, data, region=0)
    with pytest.raises(KeyboardInterrupt):
        wire.filter.inspect()
    assert wire.filter.inspect() is Verdict.HANDLED
    assert [data for _, data in registers.seen] == [b"1111", b"2222"]


def _raise(raised: BaseException) -> int:
    raise raised


def test_a_base_exception_fails_the_access_and_is_raised_later() -> None:
    callbacks = Callbacks(cast(Library, None), "test")
    failed = callbacks.failing("an access")
    assert failed(OSError(errno.ENXIO, "gone")) == errno.ENXIO
    for raised in (OSError(-5, "odd"), OSError("none"), ValueError()):
        assert failed(raised) == errno.EIO
    callbacks.raise_interrupt()
    assert failed(KeyboardInterrupt()) == errno.EIO
    with pytest.raises(KeyboardInterrupt):
        callbacks.raise_interrupt()
    callbacks.raise_interrupt()


class Lines:
    """A region of registers whose stores from 256 on are joined in lines of 64 bytes."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.calls: list[tuple[int, bytes, int]] = []
        region = RegisterRegion(
            1024,
            _read,
            lambda offset, data: self.calls.append((offset, data, 0)),
            _error,
            LineStores(256, self._line),
        )
        self.wire.serve({0: region, 1: region})

    def _line(self, offset: int, data: bytes, width: int) -> None:
        self.calls.append((offset, data, width))
        if data.startswith(b"fail"):
            raise RuntimeError("not this one")

    def served(self, *stores: tuple[int, bytes]) -> list[tuple[int, int, int]]:
        """Where, how many bytes and how wide the calls are that posted stores become."""
        self.calls.clear()
        for offset, data in stores:
            self.wire.write(offset, data, region=0)
        while self.wire.filter.inspect() is Verdict.HANDLED:
            pass
        return [(offset, len(data), width) for offset, data, width in self.calls]


@pytest.fixture
def lines() -> Lines:
    """A region with such lines."""
    return Lines()


def _ascending(start: int, stop: int, width: int = 8) -> list[tuple[int, bytes]]:
    return [(at, bytes(range(at % 128, at % 128 + width))) for at in range(start, stop, width)]


def test_stores_of_a_line_are_one_call(lines: Lines) -> None:
    assert lines.served(*_ascending(256, 384)) == [(256, 64, 8), (320, 64, 8)]
    assert b"".join(data for _, data, _ in lines.calls) == bytes(range(128))
    assert lines.served(*_ascending(256, 320, 4)) == [(256, 64, 4)]
    assert lines.served(*_ascending(272, 328)) == [(272, 48, 8), (320, 8, 8)]


def test_stores_that_continue_no_line_are_calls_of_their_own(lines: Lines) -> None:
    word = bytes(8)
    assert lines.served((256, word), (272, word)) == [(256, 8, 8), (272, 8, 8)]
    assert lines.served((256, word), (256, word)) == [(256, 8, 8), (256, 8, 8)]
    assert lines.served((256, word), (264, word[:4])) == [(256, 8, 8), (264, 4, 4)]
    assert lines.served((316, word), (324, word)) == [(316, 8, 8), (324, 8, 8)]
    assert lines.served((240, word), (248, word), (256, word)) == [
        (240, 8, 0), (248, 8, 0), (256, 8, 8)
    ]  # fmt: skip


def test_lines_of_two_regions_are_not_joined(lines: Lines) -> None:
    lines.wire.write(256, bytes(8), region=0)
    lines.wire.write(264, bytes(8), region=1)
    assert lines.wire.filter.inspect() is Verdict.HANDLED
    assert [offset for offset, _, _ in lines.calls] == [256, 264]


def test_a_store_with_a_reply_ends_a_line_and_is_answered(lines: Lines) -> None:
    lines.wire.write(256, bytes(8), region=0)
    where = struct.pack("<QII", 264, 0, 8)
    assert _ask(lines.wire, 10, where + bytes(8)) == (0, where)
    assert [(offset, width) for offset, _, width in lines.calls] == [(256, 8), (264, 0)]


def test_a_line_that_fails_is_not_repeated_and_others_follow(lines: Lines) -> None:
    assert lines.served((256, b"fail1234"), (264, bytes(8)), *_ascending(320, 384)) == [
        (256, 16, 8),
        (320, 64, 8),
    ]


def test_a_line_is_served_as_far_as_it_has_arrived(lines: Lines) -> None:
    lines.wire.write(256, bytes(8), region=0)
    message = struct.pack("<HHIIIQII", 1, 10, 40, NO_REPLY, 0, 264, 0, 8) + bytes(8)
    lines.wire.client.sendall(message[:36])
    assert lines.wire.filter.inspect() is Verdict.HANDLED
    assert lines.wire.filter.inspect() is Verdict.IDLE
    lines.wire.client.sendall(message[36:])
    assert lines.wire.filter.inspect() is Verdict.HANDLED
    assert lines.calls == [(256, bytes(8), 8), (264, bytes(8), 8)]


@given(
    st.lists(st.tuples(st.sampled_from((248, 256, 264, 300, 312, 316, 320)), st.integers(1, 40)))
)
def test_joined_stores_are_those_that_were_sent(starts: list[tuple[int, int]]) -> None:
    lines = Lines()
    sent = [store for start, count in starts for store in _ascending(start, start + 8 * count)]
    found = [
        (offset + at, data[at : at + (width or len(data))])
        for offset, data, width in _calls(lines, sent)
        for at in range(0, len(data), width or len(data))
    ]
    assert found == sent


def _calls(lines: Lines, sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes, int]]:
    calls = []
    for at in range(0, len(sent), 50):
        lines.served(*sent[at : at + 50])
        calls += lines.calls
    return calls
