"""The guest driver brings the HCA up and down on the real server; completion events reach it."""

from __future__ import annotations

import select

import pytest

from bluebridge.device.layout.mlx4.capabilities import DevFlag
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, EventType
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.drivers.hca.resources.commands import FirmwareError
from bluebridge.guest.verbs import CompletionQueue, QpInit, QpType, VerbsError, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import Player, connected, settle

Buses = tuple[SocketBus, SocketBus]


def test_device_and_port(contexts: tuple[Context, Context]) -> None:
    a, b = contexts
    device = a.query_device()
    assert device.name == "mlx4_0"
    assert device.flags & (DevFlag.RC | DevFlag.IBOE) == DevFlag.RC | DevFlag.IBOE
    assert device.local_inv and device.fast_reg
    assert device.max_qp_wr >= 1024
    port = a.query_port()
    assert port.active and a.ethernet_port.active
    assert port.mac != b.query_port().mac
    assert port.active_mtu == 1024
    assert port.gids[0][:2] == b"\xfe\x80"


def test_port_event(contexts: tuple[Context, Context]) -> None:
    event = contexts[0].async_events.get_event(2)
    assert event is not None
    assert (event.type, event.subtype, event.number) == (EventType.PORT_CHANGE, PORT_ACTIVE, 1)


def test_reload_three_times(hca_buses: Buses) -> None:
    bus = hca_buses[0]
    before = bus.available()
    for _ in range(3):
        with open_hca(bus) as ctx:
            assert ctx.ethernet_port.active
        assert bus.available() == before


def test_reload_without_closing(hca_buses: Buses) -> None:
    """A driver that was killed leaves a running device behind; the reset of the next ends that."""
    a, b = hca_buses
    first = open_hca(a)
    with open_hca(b) as peer:
        left, right = connected(first, peer)
        with open_hca(a) as second:
            again = Player(second)
            again.connect(right)
            again.qp.query_state()
        assert right.qp.query_state() is not None
    assert left.cq.poll() == []


def test_close_frees_what_is_open(hca_buses: Buses) -> None:
    bus = hca_buses[0]
    with open_hca(bus) as ctx:
        player = Player(ctx)
        qpn = player.qp.qpn
        player.memory.free()
    assert qpn not in ctx.adapter.queue_pairs
    assert not ctx.adapter.completion_queues
    ctx.close()  # a second time does nothing


def test_own_mac(hca_buses: Buses) -> None:
    mac = bytes.fromhex("0202c9001122")
    with open_hca(hca_buses[0], mac) as ctx:
        assert ctx.query_port().mac == mac
        assert ctx.ethernet_port.gids[0] == bytes.fromhex("fe800000000000000002c9fffe001122")
    with pytest.raises(HcaError, match="unicast"):
        open_hca(hca_buses[0], b"\xff" * 6)


def test_gid_table(contexts: tuple[Context, Context]) -> None:
    ctx = contexts[0]
    gid = bytes(10) + b"\xff\xff\x0a\x00\x00\x01"
    assert ctx.ethernet_port.add_gid(gid) == 1 == ctx.ethernet_port.add_gid(gid)
    ctx.ethernet_port.remove_gid(gid)
    assert ctx.ethernet_port.add_gid(bytes(15) + b"\1") == 1
    with pytest.raises(VerbsError, match="is not a GID"):
        ctx.ethernet_port.add_gid(bytes(16))


def test_numbers_and_keys_are_not_those_of_the_other_guest(
    contexts: tuple[Context, Context],
) -> None:
    """A tenant that knows its own cannot guess those of its peer."""
    ours, theirs = (Player(ctx) for ctx in contexts)
    assert ours.qp.qpn != theirs.qp.qpn
    assert ours.mr.rkey != theirs.mr.rkey
    low_bytes = {ours.pd.reg_mr(ours.address, 64).rkey & 0xFF for _ in range(16)}
    assert len(low_bytes) > 4


def test_numbers_are_used_again(contexts: tuple[Context, Context]) -> None:
    """Many objects after one another: numbers come back, with another generation for keys."""
    ctx = contexts[0]
    pd = ctx.alloc_pd()
    memory = ctx.allocate(4096)
    keys = set()
    for _ in range(5000):
        mr = pd.reg_mr(memory.address, 4096)
        keys.add(mr.rkey)
        mr.close()
    assert len(keys) == 5000


def test_queue_pairs_with_generations(contexts: tuple[Context, Context]) -> None:
    a, b = contexts
    player, peer = Player(a), Player(b)
    numbers = set()
    for _ in range(1200):
        qp = player.pd.create_qp(QpInit(QpType.RC, player.cq, player.cq, 4, 4))
        numbers.add(qp.qpn)
        qp.destroy()
    player.qp.destroy()
    init = QpInit(QpType.RC, player.cq, player.cq, 4, 4)
    player.qp = player.pd.create_qp(init)
    assert len({number >> 10 for number in numbers}) > 1  # a second generation
    assert len(numbers) == 1200
    player.connect(peer)
    peer.connect(player)
    player.receive()
    peer.view[:4] = b"ping"
    peer.send(WrOpcode.SEND, [peer.sge(0, 4)])
    (wc,) = player.expect(WcStatus.SUCCESS)
    assert wc.qp_num == player.qp.qpn


def test_bad_command_has_a_status(contexts: tuple[Context, Context]) -> None:
    with pytest.raises(FirmwareError, match=r"INIT2RTR_QP failed: status 0x\d\d") as caught:
        contexts[0].adapter.commands.run(Opcode.INIT2RTR_QP, 0x3F0, data=bytes(256))
    assert caught.value.status in (Status.BAD_QP_STATE, Status.BAD_RES_STATE, Status.BAD_INDEX)


def test_channels_end_with_the_vectors(hca_buses: Buses) -> None:
    with open_hca(hca_buses[0], vectors=3) as ctx:
        channels = [ctx.create_comp_channel() for _ in range(2)]
        with pytest.raises(VerbsError, match="no interrupt vector"):
            ctx.create_comp_channel()
        channels[0].close()
        ctx.create_comp_channel()


def test_function_level_reset(hca_buses: Buses) -> None:
    """vfio-user's reset leaves a device that can be brought up again."""
    open_hca(hca_buses[0])
    hca_buses[0].reset()
    with open_hca(hca_buses[0]) as ctx:
        assert ctx.ethernet_port.active


OK = WcStatus.SUCCESS


@pytest.fixture
def pair(contexts: tuple[Context, Context]) -> tuple[Player, Player]:
    """Two connected players."""
    return connected(*contexts)


def event(player: Player, timeout: float = 2.0) -> CompletionQueue | None:
    """The next completion event."""
    return player.channel.get_event(timeout)


def test_one_event_for_many(pair: tuple[Player, Player]) -> None:
    a, b = pair
    b.cq.req_notify()
    for _ in range(4):
        b.receive()
    for _ in range(4):
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
    a.expect(OK, OK, OK, OK)
    assert event(b) is b.cq
    assert event(b, 0.02) is None
    b.expect(OK, OK, OK, OK)


def test_descriptor_stays_readable(pair: tuple[Player, Player]) -> None:
    """Two CQs on one channel: after the first event the second still shows."""
    a, b = pair
    second = b.ctx.create_cq(8, b.channel)
    other = Player(b.ctx)
    other_init_cq, other.cq = other.cq, second
    other.qp.destroy()
    other_init_cq.destroy()
    other.qp = other.pd.create_qp(QpInit(QpType.RC, second, second, 4, 4))
    peer = Player(a.ctx)
    peer.connect(other)
    other.connect(peer)
    b.receive()
    other.receive()
    b.cq.req_notify()
    second.req_notify()
    a.send(WrOpcode.SEND, [a.sge(0, 1)])
    peer.send(WrOpcode.SEND, [peer.sge(0, 1)])
    a.expect(OK)
    peer.expect(OK)
    settle(b)
    fd = b.channel.fileno()
    seen = []
    for _ in range(2):
        assert select.select([fd], [], [], 2)[0]
        seen.append(event(b, 0))
    assert set(seen) == {b.cq, second}
    assert event(b, 0) is None
    assert not select.select([fd], [], [], 0)[0]


def test_vectors_are_separate(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts)
    bystander = Player(contexts[1])
    bystander.cq.req_notify()
    b.cq.req_notify()
    b.receive()
    a.send(WrOpcode.SEND, [a.sge(0, 1)])
    assert event(b) is b.cq
    assert not select.select([bystander.channel.fileno()], [], [], 0)[0]
