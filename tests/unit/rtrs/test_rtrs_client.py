"""The client's engine against servers that are wrong, slow or dead."""

from __future__ import annotations

import errno
import random
import struct

import pytest

from bluebridge.device.layout.net.rtrs import ImmediateType, immediate, response_payload
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Closed,
    Direction,
    Finished,
    Invalidate,
    Limits,
    LinkChanged,
    Open,
    Opened,
    PostReceive,
    Received,
    Register,
)
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.interface import Permit
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings
from tests.unit.rtrs.rtrs_peers import (
    ADDRESSES,
    CHUNK,
    OTHER,
    ClientPeer,
    a_send,
    a_write,
    conn_rsp,
    info_rsp,
)
from tests.world.rtrs.memory import Slots

NEW_RKEY = 2
BASE = 0x1000000


def answer(slot: int, failed: int = 0, *, ended: bool = False) -> int:
    kind = ImmediateType.IO_RSP_W_INV if ended else ImmediateType.IO_RSP
    return immediate(kind, response_payload(slot, failed))


@pytest.fixture
def client() -> ClientPeer:
    peer = ClientPeer()
    peer.connect()
    return peer


@pytest.fixture
def two() -> ClientPeer:
    """A client with two connected paths: connections 1 and 2, 3 and 4."""
    peer = ClientPeer(None, ADDRESSES, OTHER)
    peer.connect()
    peer.connect()
    return peer


def states(peer: ClientPeer) -> list[str]:
    return [path.state for path in peer.session.paths]


def nothing_left(peer: ClientPeer) -> bool:
    return not peer.slots.data and not peer.slots.keys.count and peer.session.deadline is None


def test_sizes_of_queue_pairs_and_receives(client: ClientPeer) -> None:
    assert [one.limits for one in client.of(Open)] == [Limits(1026, 1026, 2), Limits(17, 13, 2)]
    receives = [(one.connection, one.count, one.length) for one in client.of(PostReceive)]
    assert receives == [(1, 1, 8 + 16 * 4), (1, 1024, 0), (2, 8, 0)]
    assert client.of(Opened) == [Opened(None, 0)]
    assert (client.session.queue_depth, client.session.max_io_size) == (4, 4096)


def test_receives_have_room_for_keys_if_the_server_sends_them() -> None:
    peer = ClientPeer()
    peer.connect(flags=NEW_RKEY)
    assert [one.length for one in peer.of(PostReceive)[1:]] == [8, 8]


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(conn_rsp()[:55], id="short"),
        pytest.param(conn_rsp(magic=1), id="magic"),
        pytest.param(conn_rsp(version=0x0100), id="version"),
        pytest.param(conn_rsp(errno=-5), id="accepted with an error"),
        pytest.param(conn_rsp(depth=0), id="no chunks"),
        pytest.param(conn_rsp(io=0), id="no room for data"),
    ],
)
def test_a_response_that_cannot_be(response: bytes) -> None:
    peer = ClientPeer()
    peer.establish(response)
    assert peer.of(Opened) == [Opened(None, errno.ECONNRESET)]
    assert peer.gone() == {1} and nothing_left(peer)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(info_rsp([(BASE, 1, CHUNK)] * 4)[:71], id="short"),
        pytest.param(b"\1\0", id="very short"),
        pytest.param(info_rsp([(BASE, 1, CHUNK)] * 4, kind=4), id="type"),
        pytest.param(info_rsp([], count=0), id="no pieces"),
        pytest.param(info_rsp([(BASE, 1, CHUNK)] * 3), id="pieces do not divide the chunks"),
        pytest.param(info_rsp([(BASE, 1, CHUNK)] * 2), id="too few chunks"),
        pytest.param(info_rsp([(BASE, 1, 2 * CHUNK)] * 4), id="too many chunks"),
        pytest.param(info_rsp([(BASE, 1, CHUNK - 1)] * 4), id="part of a chunk"),
        pytest.param(info_rsp([(BASE, 1, 0)] * 4), id="empty piece"),
        pytest.param(info_rsp([(BASE, 1, CHUNK)], count=65535), id="more pieces than bytes"),
    ],
)
def test_an_info_response_that_cannot_be(data: bytes) -> None:
    peer = ClientPeer()
    peer.establish()
    peer.establish()
    peer.receive(1, a_send(data))
    assert peer.of(Opened) == [Opened(None, errno.ECONNRESET)]
    assert peer.gone() == {1, 2} and nothing_left(peer)


def test_a_request_instead_of_the_info_response() -> None:
    peer = ClientPeer()
    peer.establish()
    peer.establish()
    peer.receive(1, a_write(0))
    assert peer.of(Opened) == [Opened(None, errno.ECONNRESET)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (conn_rsp(errno=-errno.ENXIO), errno.ENXIO),
        (conn_rsp(errno=-errno.EEXIST), errno.EEXIST),
        (b"", errno.ECONNRESET),
    ],
)
def test_open_tells_why_the_server_refused(data: bytes, expected: int) -> None:
    peer = ClientPeer(None, ADDRESSES, OTHER)
    peer.connect()
    peer.tell(peer.session.rejected, peer.opening.connection, data)
    assert peer.of(Opened) == [Opened(None, expected)]
    assert peer.gone() == {1, 2, 3} and nothing_left(peer)


@pytest.mark.parametrize("established", [0, 1, 2])
def test_a_server_that_falls_silent_while_it_is_opened(established: int) -> None:
    peer = ClientPeer()
    for _connection in range(established):
        peer.establish()
    peer.advance(29.9)
    assert not peer.of(Opened)
    peer.advance(0.2)
    assert peer.of(Opened) == [Opened(None, errno.ETIMEDOUT)]
    assert nothing_left(peer)


def test_no_memory_for_slots() -> None:
    peer = ClientPeer()

    class Poor(type(peer.slots)):  # type: ignore[misc]
        def map(self, *_all: object) -> None:
            raise MemoryError

    peer.slots.__class__ = Poor
    peer.establish()
    peer.establish()
    assert peer.of(Opened) == [Opened(None, errno.ENOMEM)]
    assert nothing_left(peer)


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "x" * 255])
def test_names_that_no_session_can_have(name: str) -> None:
    with pytest.raises(ValueError):
        ClientSession(name, Slots(), random.Random(1), ClientSettings())


def test_another_queue_depth_ends_attempts_until_somebody_asks(client: ClientPeer) -> None:
    client.tell(client.session.failed, 1, "broken")
    client.advance(10.0)
    client.establish(conn_rsp(depth=8))
    client.advance(100.0)
    assert states(client) == ["closed"]
    client.tell(client.session.reconnect_path, 1)
    client.advance(2.0)
    client.connect()
    assert states(client) == ["connected"]


def test_requests_that_are_too_long(client: ClientPeer) -> None:
    permit = client.session.get_permit()
    assert permit is not None
    for direction in Direction:
        assert client.session.request(direction, permit, b"", 4097, 0.0) == errno.EMSGSIZE
        assert client.session.request(direction, permit, bytes(4096), 0, 0.0) == errno.EMSGSIZE
    client.session.put_permit(permit)


def test_permits_are_the_slots_and_the_lowest_comes_first(client: ClientPeer) -> None:
    permits = [client.session.get_permit() for _slot in range(5)]
    assert [permit and permit.slot for permit in permits] == [0, 1, 2, 3, None]
    assert permits[2] is not None
    client.session.put_permit(permits[2])
    with pytest.raises(ValueError):
        client.session.put_permit(permits[2])
    again = client.session.get_permit()
    assert again is not None and again.slot == 2


def test_the_cpu_chooses_the_connection_and_admin_is_connection_0() -> None:
    peer = ClientPeer(ClientSettings(cpus=2))
    numbers = peer.connect()
    peer.forget()
    for cpu, number in ((0, numbers[1]), (1, numbers[2]), (2, numbers[1])):
        before = len(peer.posted(number))
        peer.request(Direction.WRITE, cpu=cpu)
        assert len(peer.posted(number)) == before + 1
    permit = peer.session.get_permit(admin=True)
    assert permit is not None
    peer.tell(peer.session.request, Direction.WRITE, permit, b"", 0)
    assert len(peer.posted(numbers[0])) == 1


def test_an_answer_finishes_its_request(client: ClientPeer) -> None:
    slot = client.request(Direction.WRITE)
    client.receive(2, a_write(answer(slot, errno.EIO)))
    assert client.of(Finished) == [Finished(slot, errno.EIO)]
    client.receive(2, a_write(answer(slot)))
    assert len(client.of(Finished)) == 1, "a second answer is of no interest"


def test_a_read_ends_with_its_key(client: ClientPeer) -> None:
    slot = client.request(Direction.READ)
    (register,) = [one for one in client.posted(2) if isinstance(one, Register)]
    client.receive(2, Received(b"", None, register.key, False))
    client.receive(2, a_write(answer(slot, ended=True)))
    assert client.of(Finished) == [Finished(slot, 0)]
    client.session.put_permit(permit_of(slot))
    client.request(Direction.READ)
    keys = [one.key for one in client.posted(2) if isinstance(one, Register)]
    assert keys == [register.key, register.key + 1]


def test_the_client_ends_the_key_if_the_server_does_not(client: ClientPeer) -> None:
    slot = client.request(Direction.READ)
    client.receive(2, a_write(answer(slot, 7)))
    assert not client.of(Finished)
    end = client.posted(2)[-1]
    assert isinstance(end, Invalidate) and end.token
    client.tell(client.session.sent, 2, end.token)
    assert client.of(Finished) == [Finished(slot, 7)]


def test_keys_that_stay_are_registered_once() -> None:
    peer = ClientPeer(ClientSettings(cpus=1, need_inval=False))
    peer.connect()
    for _time in range(3):
        slot = peer.request(Direction.READ)
        peer.receive(2, a_write(answer(slot)))
        peer.session.put_permit(permit_of(slot))
    assert len(peer.of(Finished)) == 3
    registers = [one for one in peer.posted(2) if isinstance(one, Register)]
    assert [one.length for one in registers] == [4096]


def test_a_new_key_is_used_for_the_next_request() -> None:
    peer = ClientPeer()
    peer.connect(flags=NEW_RKEY)
    slot = peer.request(Direction.WRITE)
    peer.receive(2, a_send(struct.pack("<HHI", 4, slot, 0xBEEF01), answer(slot)))
    assert peer.of(Finished) == [Finished(slot, 0)]
    peer.session.put_permit(permit_of(slot))
    peer.request(Direction.WRITE)
    assert [getattr(one, "rkey", None) for one in peer.posted(2)] == [0x100, 0xBEEF01]


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(a_send(struct.pack("<HHI", 4, 1, 5), answer(0)), id="key of another chunk"),
        pytest.param(a_send(struct.pack("<HHI", 1, 0, 5), answer(0)), id="type"),
        pytest.param(a_send(b"\4\0\0\0", answer(0)), id="short"),
        pytest.param(a_send(struct.pack("<HHI", 4, 9, 5), answer(9)), id="chunk beyond the depth"),
        pytest.param(a_write(answer(4)), id="slot beyond the depth"),
        pytest.param(a_write(answer(0x7FFFF)), id="last slot number"),
        pytest.param(a_send(b"hello"), id="a message without immediate"),
    ],
)
def test_answers_that_break_their_path(received: Received) -> None:
    peer = ClientPeer()
    peer.connect(flags=NEW_RKEY)
    peer.request(Direction.WRITE)
    peer.receive(2, received)
    assert states(peer) == ["reconnecting"]
    assert peer.of(Finished) == [Finished(0, errno.ECONNABORTED)]
    assert peer.of(LinkChanged) == [LinkChanged(False)]


def test_an_immediate_of_an_unused_kind_is_ignored(client: ClientPeer) -> None:
    client.receive(2, a_write(immediate(12, 0)))
    assert states(client) == ["connected"]


def test_heartbeats_that_are_not_answered_break_the_path(client: ClientPeer) -> None:
    slot = client.request(Direction.WRITE)
    client.advance(34.9)
    assert client.immediates().count(0x80000000) == 1, "one, until it is answered"
    assert states(client) == ["connected"]
    client.advance(0.2)
    assert states(client) == ["reconnecting"]
    assert client.of(Finished) == [Finished(slot, errno.ECONNABORTED)]


def test_heartbeats_are_answered_and_timed(client: ClientPeer) -> None:
    client.receive(1, a_write(0x80000000))
    assert client.immediates() == [0x90000000]
    client.advance(5.0)
    client.now += 0.25
    client.receive(1, a_write(0x90000000))
    assert client.session.paths[0].latency == 0.25


def test_requests_fail_over_in_the_order_of_their_slots(two: ClientPeer) -> None:
    two.session.mp_policy = "round-robin"
    slots = [two.request(Direction.WRITE) for _slot in range(4)]
    assert slots == [0, 1, 2, 3]
    two.receive(2, a_write(answer(0)))
    two.forget()
    two.tell(two.session.failed, 2, "broken")
    assert [getattr(one, "slot", None) for one in two.posted(4)] == [2]
    assert not two.posted(2) and not two.of(Finished) and not two.of(LinkChanged)
    for slot in (1, 2, 3):
        two.receive(4, a_write(answer(slot)))
    assert [one.slot for one in two.of(Finished)] == [1, 2, 3]
    first, second = two.session.paths
    assert (first.statistics.failovers, second.statistics.failovers) == (0, 1)


def test_without_another_path_requests_fail(client: ClientPeer) -> None:
    client.request(Direction.WRITE)
    client.request(Direction.READ)
    client.tell(client.session.disconnected, 1)
    aborted = errno.ECONNABORTED
    assert client.of(Finished) == [Finished(0, aborted), Finished(1, aborted)]
    permit = client.session.get_permit()
    assert permit is not None
    assert client.session.request(Direction.WRITE, permit, b"", 0, 0.0) == aborted


def stranded(two: ClientPeer) -> tuple[int, int]:
    """Slot of a request on no path, last connection of a path that has sent INFO_REQ."""
    two.tell(two.session.failed, 4, "broken")
    two.advance(4.0)
    two.establish()
    number = two.establish()
    slot = two.request(Direction.WRITE)
    two.tell(two.session.failed, 2, "broken")
    return slot, number


def test_requests_wait_for_a_path_that_has_sent_its_info_request(two: ClientPeer) -> None:
    slot, number = stranded(two)
    assert not two.of(Finished)
    two.receive(number - 1, a_send(info_rsp([(BASE, 9, 4 * CHUNK)])))
    assert [getattr(one, "slot", None) for one in two.posted(number)] == [slot]
    two.receive(number, a_write(answer(slot)))
    assert two.of(Finished) == [Finished(slot, 0)]


def test_requests_do_not_wait_longer_than_that_path(two: ClientPeer) -> None:
    slot, number = stranded(two)
    two.tell(two.session.failed, number, "broken")
    assert two.of(Finished) == [Finished(slot, errno.ECONNABORTED)]


def test_attempts_and_pauses(client: ClientPeer) -> None:
    """2 s between attempts and 1 s in front of each."""
    client.session.max_reconnect_attempts = 2
    client.forget()
    client.tell(client.session.failed, 1, "broken")
    client.advance(2.9)
    assert not client.of(Open)
    for attempt in (1, 2):
        client.advance(0.2)
        assert len(client.of(Open)) == attempt
        client.tell(client.session.connect_failed, client.opening.connection, errno.EHOSTUNREACH)
        client.advance(2.9)
    client.advance(100.0)
    assert len(client.of(Open)) == 2 and states(client) == ["closed"]
    statistics = client.session.paths[0].statistics
    assert (statistics.reconnects, statistics.failed_reconnects) == (0, 2)


def test_a_path_that_comes_back_brings_the_link_back(client: ClientPeer) -> None:
    client.tell(client.session.failed, 1, "broken")
    client.advance(4.0)
    client.connect()
    assert client.of(LinkChanged) == [LinkChanged(False), LinkChanged(True)]
    assert client.session.paths[0].statistics.reconnects == 1


def test_the_connections_are_kept_until_the_peer_knows_of_their_end() -> None:
    peer = ClientPeer()
    peer.connect()
    peer.session.failed(1, "broken", 0.0)
    for _time in range(3):
        peer.actions += peer.session.take_actions()
    for number in (1, 2):
        peer.session.drained(number, 0.0)
    peer.take()
    assert not peer.gone()
    peer.advance(29.9)
    assert not peer.gone()
    peer.advance(0.2)
    assert peer.gone() == {1, 2}


def test_round_robin_takes_turns_for_each_cpu() -> None:
    peer = ClientPeer(ClientSettings(cpus=1, mp_policy="round-robin"), ADDRESSES, OTHER)
    peer.connect()
    peer.connect()
    for cpu in (0, 1, 0, 1):
        peer.request(Direction.WRITE, cpu=cpu)
    slots = {
        number: [getattr(one, "slot", None) for one in peer.posted(number)[:2]] for number in (2, 4)
    }
    assert slots == {2: [0, 1], 4: [2, 3]}


def test_min_inflight(two: ClientPeer) -> None:
    for _request in range(3):
        two.request(Direction.WRITE)
    assert [path.statistics.inflight for path in two.session.paths] == [2, 1]
    two.receive(2, a_write(answer(0)))
    two.receive(2, a_write(answer(2)))
    assert [path.statistics.inflight for path in two.session.paths] == [0, 1]


def test_min_latency(two: ClientPeer) -> None:
    two.session.mp_policy = "min-latency"
    two.advance(5.0)
    two.now += 0.25
    two.receive(3, a_write(0x90000000))
    two.now += 0.25
    two.receive(1, a_write(0x90000000))
    two.forget()
    two.request(Direction.WRITE)
    assert two.posted(4) and not two.posted(2)


def test_paths_come_and_go(client: ClientPeer) -> None:
    number = client.tell(client.session.add_path, OTHER)
    client.connect()
    assert client.of(Opened)[-1] == Opened(number, 0)
    client.tell(client.session.remove_path, 1)
    assert [path.addresses.destination for path in client.session.paths] == [OTHER.destination]
    client.tell(client.session.disconnect_path, number)
    client.advance(100.0)
    assert states(client) == ["closed"]
    for call in (client.session.remove_path, client.session.disconnect_path):
        with pytest.raises(ValueError):
            call(1, 0.0)


def test_a_path_that_cannot_be_added_is_forgotten(client: ClientPeer) -> None:
    number = client.tell(client.session.add_path, OTHER)
    client.tell(client.session.connect_failed, client.opening.connection, errno.EHOSTUNREACH)
    assert client.of(Opened)[-1] == Opened(number, errno.EHOSTUNREACH)
    assert len(client.session.paths) == 1


def test_only_the_first_path_may_make_a_session_until_it_is_known_to_the_server() -> None:
    peer = ClientPeer(None, ADDRESSES, OTHER)
    peer.connect()
    peer.connect()
    first = [one.private_data[44] for one in peer.of(Open)]
    assert first == [1, 1, 0, 1]


def test_close_gives_everything_back(two: ClientPeer) -> None:
    slot = two.request(Direction.WRITE)
    two.tell(two.session.close)
    assert two.of(Finished) == [Finished(slot, errno.ECONNABORTED)]
    assert not two.of(Closed), "a permit is still out"
    two.session.put_permit(permit_of(slot))
    two.take()
    assert two.of(Closed) and nothing_left(two)


def test_a_device_that_goes_closes_its_path(two: ClientPeer) -> None:
    two.tell(two.session.device_removed, 2)
    assert states(two) == ["closed", "connected"]


def permit_of(slot: int) -> Permit:
    return Permit(slot, 0, False)
