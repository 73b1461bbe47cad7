"""The server's engine against clients that are wrong, slow, hostile or dead."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from bluebridge.device.layout.net.rtrs import ImmediateType, immediate
from bluebridge.guest.protocols.rtrs.engine.actions import (
    AddressPair,
    Closed,
    Direction,
    Disconnect,
    Limits,
    PostReceive,
    Prepare,
    Received,
    Register,
    Send,
    SendInvalidate,
    Serve,
    SessionDown,
    SessionUp,
    WriteChunk,
    WriteImmediate,
)
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings
from tests.unit.rtrs.rtrs_peers import (
    ADDRESSES,
    CHUNK,
    OTHER,
    ServerPeer,
    a_send,
    a_write,
    conn_req,
    heartbeat,
    info_req,
)

KEPT = ServerSettings(queue_depth=4, max_chunk_size=CHUNK, always_invalidate=False)
OTHER_PATH, OTHER_SESSION = bytes(16), bytes([7]) * 16
WRITE = b"user" + struct.pack("<HH", 2, 4)


def read(
    usr_len: int = 4, flags: int = 1, count: int = 1, length: int = 512, user: bytes = b"user"
) -> bytes:
    head = struct.pack("<HHHH", 3, usr_len, flags, count)
    return user + head + struct.pack("<QII", 0xABC000, 0x77, length)


@pytest.fixture
def server() -> ServerPeer:
    """A server with a connected path of connections 1 and 2."""
    peer = ServerPeer()
    peer.connect()
    return peer


def states(peer: ServerPeer) -> list[str]:
    return [path.state for session in peer.server.sessions for path in session.paths]


@pytest.mark.parametrize(
    ("request_data", "expected"),
    [
        pytest.param(conn_req()[:55], errno.ECONNRESET, id="short"),
        pytest.param(b"", errno.ECONNRESET, id="empty"),
        pytest.param(conn_req(magic=0x1BBE), errno.ECONNRESET, id="magic"),
        pytest.param(conn_req(version=0x0300), errno.ECONNRESET, id="version"),
        pytest.param(conn_req(0, 0), errno.ECONNRESET, id="no connections"),
        pytest.param(conn_req(0, 65535), errno.ECONNRESET, id="65535 connections"),
        pytest.param(conn_req(0, 4097), errno.ECONNRESET, id="4097 connections"),
        pytest.param(conn_req(2, 2), errno.ECONNRESET, id="cid"),
        pytest.param(conn_req(first=False), errno.ENXIO, id="unknown session"),
    ],
)
def test_connections_that_are_refused(request_data: bytes, expected: int) -> None:
    peer = ServerPeer()
    assert peer.ask(1, request_data) == expected
    assert peer.empty and peer.server.deadline is None


def test_another_minor_version_is_welcome() -> None:
    assert ServerPeer().ask(1, conn_req(version=0x0201)) is None


@pytest.mark.parametrize(
    ("request_data", "addresses", "expected"),
    [
        pytest.param(conn_req(path=OTHER_PATH), ADDRESSES, errno.EEXIST, id="same addresses"),
        pytest.param(conn_req(1, 2), ADDRESSES, errno.ECONNRESET, id="connected path"),
    ],
)
def test_connections_that_a_session_refuses(
    server: ServerPeer, request_data: bytes, addresses: AddressPair, expected: int
) -> None:
    assert server.ask(9, request_data, addresses) == expected
    assert states(server) == ["connected"]


def test_a_connection_that_is_there_already_or_counts_otherwise() -> None:
    peer = ServerPeer()
    assert peer.ask(1, conn_req()) is None
    assert peer.ask(2, conn_req()) == errno.ECONNRESET
    assert peer.ask(3, conn_req(1, 3)) == errno.ECONNRESET
    assert peer.ask(4, conn_req(1, 2)) is None


def test_the_129th_path_is_refused() -> None:
    peer = ServerPeer()
    for number in range(128):
        addresses = AddressPair(f"10.0.0.{number}", "10.9.0.2")
        assert peer.ask(number + 1, conn_req(path=bytes([number]) * 16), addresses) is None
    assert peer.ask(200, conn_req(path=bytes([200]) * 16), OTHER) == errno.ECONNRESET


def test_a_server_without_memory_says_so_and_keeps_nothing() -> None:
    peer = ServerPeer()

    class Poor(type(peer.chunks)):  # type: ignore[misc]
        def map(self, *_all: object) -> None:
            raise MemoryError

    peer.chunks.__class__ = Poor
    assert peer.ask(1, conn_req()) == errno.ENOMEM
    assert peer.empty


def test_sizes_of_queue_pairs(server: ServerPeer) -> None:
    assert [one.limits for one in server.of(Prepare)] == [Limits(1026, 1026, 1), Limits(21, 5, 1)]
    receives = [(one.connection, one.count, one.length) for one in server.of(PostReceive)]
    assert receives == [(1, 1, 272), (1, 512, 0), (2, 4, 0)]


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(a_send(info_req()[:271]), id="short"),
        pytest.param(a_send(info_req(kind=2)), id="type"),
        pytest.param(a_send(info_req(b"a/b")), id="slash"),
        pytest.param(a_send(info_req(b"a.b")), id="dot"),
        pytest.param(a_send(info_req(b"")), id="no name"),
        pytest.param(a_write(0), id="a request"),
        pytest.param(heartbeat(), id="a heartbeat"),
    ],
)
def test_an_info_request_that_closes_its_path(received: Received) -> None:
    peer = ServerPeer()
    assert peer.ask(1, conn_req()) is None and peer.ask(2, conn_req(1, 2)) is None
    peer.receive(1, received)
    assert peer.empty and peer.server.deadline is None
    assert {one.connection for one in peer.of(Disconnect)} == {1, 2}
    assert not peer.of(SessionUp)


def test_an_info_request_before_all_connections() -> None:
    peer = ServerPeer()
    assert peer.ask(1, conn_req()) is None
    peer.receive(1, a_send(info_req()))
    assert peer.empty


def test_two_clients_cannot_have_one_name(server: ServerPeer) -> None:
    assert server.ask(5, conn_req(0, 1, session=OTHER_SESSION, path=OTHER_PATH)) is None
    server.receive(5, a_send(info_req(b"blk")))
    assert [session.name for session in server.server.sessions] == ["blk"]
    assert states(server) == ["connected"]


def test_a_lost_info_request_does_not_lock_the_client_out() -> None:
    """In Linux 6.12 such a path stays for ever, and its client is told that it exists."""
    peer = ServerPeer()
    for cid in range(2):
        assert peer.ask(cid + 1, conn_req(cid, 2)) is None
    peer.advance(29.9)
    assert peer.ask(3, conn_req()) == errno.ECONNRESET
    assert peer.ask(4, conn_req(path=OTHER_PATH)) == errno.EEXIST
    peer.advance(0.2)
    assert peer.empty
    assert peer.ask(5, conn_req()) is None


def test_connections_that_never_come_do_not_lock_the_client_out() -> None:
    peer = ServerPeer()
    assert peer.ask(1, conn_req()) is None
    peer.advance(30.0)
    assert peer.empty


@pytest.mark.parametrize("settings", [ServerPeer().settings, KEPT], ids=["new keys", "kept"])
@pytest.mark.parametrize(
    ("value", "offset", "message"),
    [
        pytest.param(3 << 26, 0, b"", id="chunk beyond the queue depth"),
        pytest.param(CHUNK, 0, b"", id="offset beyond the chunk"),
        pytest.param(CHUNK - 2, CHUNK - 2, b"\2\0", id="type at the end of the chunk"),
        pytest.param(CHUNK - 8, CHUNK - 8, b"\3\0\0\0\0\0\1\0", id="descriptor beyond the end"),
        pytest.param(100, 100, b"\2\0\xff\xff", id="user message longer than all"),
        pytest.param(100, 100, b"\2\0\x65\0", id="user message longer than its room"),
        pytest.param(100, 100, b"\7\0\4\0", id="unknown type"),
        pytest.param(516, 512, read(count=2), id="two descriptors"),
        pytest.param(516, 512, read(length=513), id="answer longer than its room"),
        pytest.param(516, 512, read(length=0), id="empty answer"),
    ],
)
def test_requests_that_close_their_path(
    settings: ServerSettings, value: int, offset: int, message: bytes
) -> None:
    peer = ServerPeer(replace(settings, queue_depth=3))
    peer.connect()
    peer.put(0, offset, message)
    peer.receive(2, a_write(value))
    assert not peer.of(Serve)
    assert peer.empty and len(peer.of(SessionDown)) == 1


def test_a_bad_request_disturbs_no_other_session(server: ServerPeer) -> None:
    assert server.ask(5, conn_req(0, 2, session=OTHER_SESSION, path=OTHER_PATH)) is None
    assert server.ask(6, conn_req(1, 2, session=OTHER_SESSION, path=OTHER_PATH)) is None
    server.receive(5, a_send(info_req(b"other")))
    server.receive(6, a_write(CHUNK))
    assert [session.name for session in server.server.sessions] == ["blk"]
    server.ask_for(WRITE)
    assert len(server.of(Serve)) == 1


def test_an_immediate_of_an_unused_kind_is_ignored(server: ServerPeer) -> None:
    server.forget()
    server.receive(2, a_write(immediate(12, 1)))
    assert states(server) == ["connected"]
    assert [(one.connection, one.count) for one in server.of(PostReceive)] == [(2, 1)]


def test_a_second_request_for_a_chunk_in_use_closes_the_path(server: ServerPeer) -> None:
    server.ask_for(WRITE)
    server.request(1, 516)
    assert states(server) == ["closing"]
    server.tell(server.server.respond, 1, 0)
    assert server.empty


def test_a_write_is_served_and_answered() -> None:
    peer = ServerPeer(KEPT)
    peer.connect()
    peer.ask_for(WRITE)
    (serve,) = peer.of(Serve)
    assert serve == Serve(1, 1, 1, Direction.WRITE, 512, b"user")
    peer.answer(1, 0)
    (response,) = peer.posted(2)
    assert isinstance(response, WriteImmediate)
    assert response.immediate == immediate(ImmediateType.IO_RSP, 1)


def test_a_long_user_message(server: ServerPeer) -> None:
    user = bytes(range(200))
    server.put(1, 512, user + struct.pack("<HH", 2, 200))
    server.request(1, 712)
    (serve,) = server.of(Serve)
    assert (serve.user, serve.length) == (user, 512)


def test_order_of_a_read_answer(server: ServerPeer) -> None:
    """Data, the chunk's new key, the end of the client's key, the response."""
    server.ask_for(read())
    (serve,) = server.of(Serve)
    assert (serve.direction, serve.length) == (Direction.READ, 512)
    server.answer(1, 0)
    data, register, end, response = server.posted(2)
    assert data == WriteChunk(1, 1, 512, 0xABC000, 0x77)
    assert isinstance(register, Register) and end == SendInvalidate(0x77)
    assert isinstance(response, Send)
    assert response.immediate == immediate(ImmediateType.IO_RSP_W_INV, 1)


def test_order_of_a_read_that_fails(server: ServerPeer) -> None:
    server.ask_for(read())
    server.answer(1, errno.EIO)
    end, register, response = server.posted(2)
    assert end == SendInvalidate(0x77) and isinstance(register, Register)
    assert isinstance(response, Send)
    assert response.immediate == immediate(ImmediateType.IO_RSP_W_INV, errno.EIO << 19 | 1)


def test_a_read_whose_key_the_client_keeps(server: ServerPeer) -> None:
    server.ask_for(read(flags=0))
    server.answer(1, 0)
    assert not [one for one in server.posted(2) if isinstance(one, SendInvalidate)]
    assert server.immediates() == [immediate(ImmediateType.IO_RSP, 1)]


def test_a_repeated_request_is_served_after_the_first_and_both_are_answered_then(
    server: ServerPeer,
) -> None:
    """The client has given path 1 up; the server does not know that yet."""
    second_path(server)
    server.ask_for(WRITE)
    server.request(1, 516, connection=12)
    assert [one.operation for one in server.of(Serve)] == [1]
    server.answer(1, errno.EIO)
    assert [one.operation for one in server.of(Serve)] == [2]
    assert server.immediates() == []
    server.tell(server.server.respond, 2, 0)
    assert server.immediates() == 2 * [immediate(ImmediateType.IO_RSP, 1)], "as the last one ended"


def test_a_repeated_request_whose_path_dies_is_not_served(server: ServerPeer) -> None:
    second_path(server)
    server.ask_for(WRITE)
    server.request(1, 516, connection=12)
    server.tell(server.server.disconnected, 11)
    server.tell(server.server.respond, 1, 0)
    assert [one.operation for one in server.of(Serve)] == [1]
    assert states(server) == ["connected"]


def test_a_path_is_let_in_when_older_operations_are_over(server: ServerPeer) -> None:
    server.ask_for(WRITE)
    second_path(server)
    assert states(server) == ["connected", "connecting"]
    server.tell(server.server.respond, 1, 0)
    assert states(server) == ["connected", "connected"]


def test_heartbeats_that_are_not_answered_close_the_path(server: ServerPeer) -> None:
    """Sent after 5 s, and dead 6 intervals later."""
    server.advance(34.9)
    assert states(server) == ["connected"]
    server.advance(0.2)
    assert server.empty and server.server.deadline is None


def test_any_request_is_a_sign_of_life(server: ServerPeer) -> None:
    for _time in range(20):
        server.advance(20.0)
        server.receive(2, a_write(immediate(12, 0)))
    assert states(server) == ["connected"]


def test_a_path_waits_for_its_operations_before_it_ends(server: ServerPeer) -> None:
    server.ask_for(WRITE)
    server.tell(server.server.disconnected, 2)
    assert states(server) == ["closing"] and not server.of(SessionDown)
    assert server.ask(9, conn_req()) == errno.ECONNRESET
    server.tell(server.server.respond, 1, 0)
    assert server.empty and server.of(SessionDown) == [SessionDown(1)]


def test_close_ends_all_sessions(server: ServerPeer) -> None:
    server.tell(server.server.close)
    assert server.empty and server.of(Closed)


@pytest.mark.parametrize(
    "settings",
    [
        ServerSettings(queue_depth=0),
        ServerSettings(queue_depth=65536),
        ServerSettings(max_chunk_size=4096),
        ServerSettings(max_chunk_size=12288),
        ServerSettings(queue_depth=65535, max_chunk_size=8192),
    ],
)
def test_settings_with_which_the_module_would_not_load(settings: ServerSettings) -> None:
    with pytest.raises(ValueError):
        ServerPeer(settings)


def second_path(server: ServerPeer) -> None:
    """Connections 11 and 12 of the same session, between other addresses."""
    for cid in range(2):
        assert server.ask(11 + cid, conn_req(cid, 2, path=OTHER_PATH), OTHER) is None
    server.receive(11, a_send(info_req()))
