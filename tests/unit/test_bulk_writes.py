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


class Wire:
    """A gate between two sockets, and what came out of it."""

    def __init__(self) -> None:
        self.client, server = socket.socketpair()
        self.server = server
        self.runs: list[tuple[int, bytes, int]] = []
        regions = {2: BulkRegion(SIZE, lambda *run: self.runs.append(run))}
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
    for region, flags, offset in ((0, NO_REPLY, 0), (2, 0, 0), (2, NO_REPLY, SIZE - 4)):
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
