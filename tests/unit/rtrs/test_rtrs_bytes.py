"""Tests of what the engines send, against bytes written down from the kernel's rtrs-pri.h."""

from __future__ import annotations

import struct

import pytest

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.net import rtrs
from bluebridge.guest.protocols.rtrs.engine import connection
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Accept,
    Direction,
    Register,
    Send,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings
from tests.unit.rtrs.rtrs_peers import ADDRESSES, ClientPeer, ServerPeer, a_write, conn_req

CONN_REQ = "0000 bd1b 0002 0000 0200 0100"
"""cma and ip version, magic, version, cid 0 of 2, first attempt."""
CONN_RSP = "bd1b 0002 0000 0400 00100000 00100000 02000000"
"""magic, version, no error, 4 chunks, 4096 bytes of data and 4096 of messages, new keys."""


def test_the_first_request_of_a_client() -> None:
    client = ClientPeer()
    data = client.opening.private_data
    assert len(data) == 56
    assert data[:12] == bytes.fromhex(CONN_REQ)
    path, session = data[12:28], data[28:44]
    assert path != session and path[6] >> 4 == session[6] >> 4 == 4
    assert data[44:] == b"\x01" + bytes(11)


def test_later_requests_of_a_client_name_the_same_path_and_session() -> None:
    client = ClientPeer()
    first = client.opening.private_data
    client.establish()
    second = client.opening.private_data
    assert second[6:8] == b"\x01\x00"
    assert second[:6] + b"\x00\x00" + second[8:] == first


def test_every_attempt_counts_up() -> None:
    client = ClientPeer()
    numbers = client.connect()
    for attempt in (2, 3):
        client.tell(client.session.failed, numbers[0], "broken")
        client.advance(10.0)
        assert struct.unpack_from("<H", client.opening.private_data, 10) == (attempt,)
        numbers = client.connect()


def test_what_a_server_accepts_with() -> None:
    server = ServerPeer()
    assert server.ask(1, conn_req()) is None
    assert server.of(Accept)[0].private_data == bytes.fromhex(CONN_RSP) + bytes(36)


def test_what_a_server_accepts_with_when_keys_stay() -> None:
    settings = ServerSettings(queue_depth=4, max_chunk_size=8192, always_invalidate=False)
    server = ServerPeer(settings)
    assert server.ask(1, conn_req()) is None
    assert server.of(Accept)[0].private_data[16:20] == bytes(4)


def test_a_refusal() -> None:
    server = ServerPeer()
    server.server.requested(1, conn_req(first=False), ADDRESSES, 0.0)
    (action,) = server.server.take_actions()
    expected = bytes.fromhex("bd1b 0002 faff") + bytes(50)
    assert getattr(action, "private_data", None) == expected, "ENXIO is 6, -6 in 16 bits is fffa"


def test_the_info_request() -> None:
    client = ClientPeer()
    first = client.establish()
    client.establish()
    (send,) = client.posted(first)
    assert isinstance(send, Send) and send.immediate is None
    assert send.data == bytes.fromhex("0000") + b"blk" + bytes(267)


def test_the_info_response() -> None:
    server = ServerPeer()
    server.connect()
    registers = [one for one in server.posted(1) if isinstance(one, Register)]
    keys = [one.key for one in registers]
    assert [one.region for one in registers] == [0, 1, 2, 3]
    assert all(key & 0xFF == 1 for key in keys), "the low byte is counted up before the first use"
    (send,) = [one for one in server.posted(1) if isinstance(one, Send)]
    assert send.data[:8] == bytes.fromhex("0100 0400 00000000")
    pieces = [struct.unpack_from("<QII", send.data, 8 + 16 * index) for index in range(4)]
    assert [(key, length) for _address, key, length in pieces] == [(key, 8192) for key in keys]


def test_a_write() -> None:
    """512 bytes of data, 4 of the user, then type 2 and the user's length; 26 bits of offset."""
    client = ClientPeer()
    numbers = client.connect()
    client.request(Direction.WRITE)
    client.request(Direction.WRITE)
    first, second = client.posted(numbers[1])
    assert isinstance(first, WriteRequest) and isinstance(second, WriteRequest)
    assert (first.length, first.header) == (512, b"user" + bytes.fromhex("0200 0400"))
    assert (first.remote_address, first.rkey) == (0x1000000, 0x100)
    assert (first.immediate, second.immediate) == (0x00000204, 0x04000204)


def test_a_read() -> None:
    """Only messages go to the server, behind the room for the data: type 3, the user's length,
    flag for the end of the key, one descriptor."""
    client = ClientPeer()
    numbers = client.connect()
    client.request(Direction.READ)
    register, write = client.posted(numbers[1])
    assert isinstance(register, Register) and isinstance(write, WriteRequest)
    assert (register.length, register.remote_write, register.key & 0xFF) == (512, True, 1)
    assert (write.length, write.remote_address) == (0, 0x1000000 + 512)
    assert write.header[:12] == b"user" + bytes.fromhex("0300 0400 0100 0100")
    _address, key, length = struct.unpack("<QII", write.header[12:])
    assert (key, length) == (register.key, 512)


def test_heartbeats() -> None:
    server = ServerPeer()
    server.connect()
    server.receive(1, a_write(0x80000000))
    server.advance(5.0)
    assert server.immediates() == [0x90000000, 0x80000000]


def test_a_response_with_a_new_key() -> None:
    """errno 5 in bits 27..19, chunk 2 in the low bits; then type 4, the chunk, its key."""
    server = ServerPeer()
    server.connect()
    server.put(2, 512, b"user" + bytes.fromhex("0200 0400"))
    server.request(2, 516)
    server.forget()
    server.tell(server.server.respond, 1, 5)
    register, send = server.posted(2)
    assert isinstance(register, Register) and isinstance(send, Send)
    assert register.key & 0xFF == 2
    assert send.immediate == 0x10280002
    assert send.data == bytes.fromhex("0400 0200") + struct.pack("<I", register.key)


@pytest.mark.parametrize(
    ("form", "table", "names"),
    [
        (connection.WRITE, rtrs.RDMA_WRITE, ("type", "usr_len")),
        (connection.READ, rtrs.RDMA_READ, ("type", "usr_len", "flags", "sg_cnt")),
        (connection.DESCRIPTOR, rtrs.SG_DESC, ("addr", "key", "len")),
        (connection.NEW_KEY, rtrs.RKEY_RSP, ("type", "buf_id", "rkey")),
    ],
)
def test_compiled_formats_are_those_of_the_tables(
    form: struct.Struct, table: Struct, names: tuple[str, ...]
) -> None:
    values = dict(zip(names, range(1, 9), strict=False))
    assert form.size == table.size
    assert form.pack(*values.values()) == bytes(table.pack(values))
