"""Posted writes taken off the socket in bulk: runs, borders, and what is not theirs."""

from __future__ import annotations

import socket
import struct

from hypothesis import given
from hypothesis import strategies as st

from device.pyvfio_user._bulk import BulkGate, BulkRegion
from device.pyvfio_user._gate import Verdict

NO_REPLY = 0x10
SIZE = 1 << 20


WIDE = 4 << 30


def _read(offset: int, length: int) -> bytes:
    """A byte that tells where; at 0x66 a failure."""
    return b"" if offset == 0x66 else bytes([offset & 0xFF]) * length


class Wire:
    """A gate between two sockets, and what came out of it."""

    def __init__(self) -> None:
        self.client, server = socket.socketpair()
        self.server = server
        self.runs: list[tuple[int, bytes, int]] = []
        regions = {
            2: BulkRegion(SIZE, _read, lambda *run: self.runs.append(run)),
            4: BulkRegion(WIDE, _read, lambda *run: self.runs.append(run)),
        }
        self.gate = BulkGate(server, lambda *_: False, lambda _: 0, regions)

    def write(self, offset: int, data: bytes, region: int = 2, flags: int = NO_REPLY) -> None:
        """A region write as the client sends it."""
        head = struct.pack("<HHIII", 1, 10, 32 + len(data), flags, 0)
        self.client.sendall(head + struct.pack("<QII", offset, region, len(data)) + data)

    def close(self) -> None:
        """Both ends."""
        self.client.close()
        self.server.close()


def test_neighbours_are_joined() -> None:
    wire = Wire()
    for offset in (0, 8, 16, 32, 40, 36):
        wire.write(offset, bytes([offset]) * (8 if offset != 36 else 4))
    assert wire.gate.look() is Verdict.HANDLED
    assert [(offset, len(data), width) for offset, data, width in wire.runs] == [
        (0, 24, 8),
        (32, 16, 8),
        (36, 4, 4),
    ]
    assert wire.gate.look() is Verdict.IDLE
    wire.close()


def test_what_wants_an_answer_or_another_region_is_left_for_the_library() -> None:
    for region, flags, offset in ((0, NO_REPLY, 0), (0, 0, 0), (3, NO_REPLY, SIZE - 4)):
        wire = Wire()
        wire.write(0, bytes(8))
        wire.write(offset, b"12345678", region, flags)
        wire.write(64, bytes(8))
        assert wire.gate.look() is Verdict.HANDLED
        assert len(wire.runs) == 1
        assert wire.gate.look() is Verdict.PASS
        assert wire.server.recv(40)[32:] == b"12345678"
        assert wire.gate.look() is Verdict.HANDLED
        wire.close()


def test_half_a_message_waits_for_its_rest() -> None:
    wire = Wire()
    wire.write(0, bytes(8))
    head = struct.pack("<HHIIIQII", 1, 10, 40, NO_REPLY, 0, 8, 2, 8)
    wire.client.sendall(head[:20])
    assert wire.gate.look() is Verdict.HANDLED
    assert wire.gate.look() is Verdict.IDLE
    wire.client.sendall(head[20:] + bytes(8))
    assert wire.gate.look() is Verdict.HANDLED
    assert len(wire.runs) == 2
    wire.client.close()
    assert wire.gate.look() is Verdict.DROP
    wire.close()


@given(st.lists(st.tuples(st.integers(0, 64), st.binary(min_size=1, max_size=8))))
def test_runs_store_what_single_writes_would(writes: list[tuple[int, bytes]]) -> None:
    wire = Wire()
    expected, found = bytearray(128), bytearray(128)
    for offset, data in writes:
        wire.write(offset, data)
        expected[offset : offset + len(data)] = data
    while wire.gate.look() is Verdict.HANDLED:
        pass
    for offset, data, width in wire.runs:
        assert len(data) % width == 0
        found[offset : offset + len(data)] = data
    assert found == expected
    wire.close()


def _ask(wire: Wire, command: int, body: bytes) -> tuple[int, bytes]:
    """A request and its reply: errno, body."""
    wire.client.sendall(struct.pack("<HHIII", 7, command, 16 + len(body), 0, 0) + body)
    assert wire.gate.look() is Verdict.HANDLED
    answer = wire.client.recv(65536)
    number, told, size, flags, error = struct.unpack_from("<HHIII", answer)
    assert (number, told, size, flags & 0xF) == (7, command, len(answer), 1)
    return error if flags & 0x20 else 0, answer[16:]


def test_a_region_of_four_gigabytes_is_served_past_the_library() -> None:
    wire = Wire()
    error, info = _ask(wire, 5, struct.pack("<IIIIQQ", 32, 0, 4, 0, 0, 0))
    assert (error, struct.unpack("<IIIIQQ", info)) == (0, (32, 3, 4, 0, WIDE, 0))
    where = struct.pack("<QII", WIDE - 8, 4, 8)
    assert _ask(wire, 9, where) == (0, where + b"\xf8" * 8)
    assert _ask(wire, 10, where + b"12345678") == (0, where)
    assert wire.runs == [(WIDE - 8, b"12345678", 8)]
    wire.close()


def test_accesses_that_cannot_be_fail() -> None:
    wire = Wire()
    for offset, length in ((WIDE - 4, 8), (0, 0), (0, 1 << 20), (0x66, 4), ((1 << 64) - 4, 8)):
        assert _ask(wire, 9, struct.pack("<QII", offset, 4, length)) == (5, b"")
    assert _ask(wire, 10, struct.pack("<QII", 0, 4, 8) + b"short") == (5, b"")
    assert not wire.runs
    wire.close()
