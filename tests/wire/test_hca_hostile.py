"""A guest that breaks every rule of the adapter: it hurts itself, nobody else.

After each assault the server lives, has logged no traceback (the fixtures look) and the other
guest's traffic still flows.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import QpInit, QpState, QpType, SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import RAM_BASE, RAM_SIZE, SocketBus
from bluebridge.host_tools.vfio_user.client import Client
from tests.models.players import Player, connected, fill, settle, untouched
from tests.models.server import ServerProcess

OK = WcStatus.SUCCESS
pytestmark = pytest.mark.usefixtures("bystanders")
Buses = tuple[SocketBus, SocketBus]


def ring(player: Player) -> memoryview:
    """The memory of both queues."""
    return player.hca_qp.data


def knock(player: Player) -> None:
    """Ring the send doorbell and wait until the server has heard it."""
    bus = player.ctx.adapter.bus
    bus.write32(2, player.ctx.adapter.uar * PAGE_SIZE + SEND_DOORBELL, player.qp.qpn << 8)
    settle(player)


def test_entry_of_size_zero(contexts: tuple[Context, Context]) -> None:
    a, _ = connected(*contexts)
    ring(a)[:16] = struct.pack(">IIII", 8, 0, 0xC, 0)
    knock(a)
    a.expect(WcStatus.LOC_QP_OP_ERR)
    a.wait_state(QpState.ERR)


def test_segments_that_stop_in_the_middle(contexts: tuple[Context, Context]) -> None:
    """An RDMA WRITE of a control segment alone; inline data that is longer than its entry."""
    for entry in (
        struct.pack(">IIII", 8, 1, 0xC, 0),
        struct.pack(">IIII", 8, 2, 0xC, 0) + bytes(16),
        struct.pack(">IIII", 0x19, 2, 0xC, 0) + bytes(16),
        struct.pack(">IIII", 0xA, 2, 0xC, 0) + struct.pack(">I", 0x80000000 | 4000),
    ):
        a, b = connected(*contexts)
        fill(a, b)
        ring(a)[: len(entry)] = entry
        knock(a)
        settle(a)
        untouched(a, b)


def test_doorbells_of_unknown_queue_pairs(attacker: Context) -> None:
    player = Player(attacker)
    for qpn in (0, 1, 63, player.qp.qpn, player.qp.qpn + 1, 0x3FF, 0xFFFFFF):
        attacker.adapter.bus.write32(2, attacker.adapter.uar * PAGE_SIZE + SEND_DOORBELL, qpn << 8)
    settle(player)


def hostile_client(ctx: Context) -> Client:
    """The connection beneath a context."""
    assert isinstance(ctx.adapter.bus, SocketBus)
    return ctx.adapter.bus.client


def test_receive_counter_out_of_nowhere(contexts: tuple[Context, Context]) -> None:
    """A doorbell record that claims 65535 receives: the entries are garbage, the sender is told."""
    a, b = connected(*contexts)
    fill(a, b)
    b.hca_qp._record_words[0] = 0xFFFFFFFF
    a.send(WrOpcode.SEND, [a.sge(0, 64)])
    (wc,) = a.wait()
    assert wc.status is not OK
    untouched(a, b)
    b.qp.query_state()


def test_srq_whose_list_is_a_circle(contexts: tuple[Context, Context]) -> None:
    a, b = Player(contexts[0]), Player(contexts[1], srq=True)
    fill(a, b)
    a.connect(b)
    b.connect(a)
    for n in range(4):
        b.receive(n)
    stride = 1 << b.hca_srq.shift
    for n, following in enumerate((0xFFFF, 0, 1, 0x8000)):
        b.hca_srq.data[n * stride + 2 : n * stride + 4] = following.to_bytes(2, "big")
    a.qp.post_send([SendWr(n, WrOpcode.SEND, [a.sge(0, 8)]) for n in range(8)])
    settle(a)
    b.qp.query_state()


def test_completion_queue_overrun(contexts: tuple[Context, Context]) -> None:
    """More completions than the queue holds: an event says so, no unread entry is overwritten."""
    a, b = connected(*contexts)
    while a.ctx.async_events.get_event(0):
        pass
    small = a.ctx.create_cq(1)
    other = Player(a.ctx)
    other.qp.destroy()
    other.qp = other.pd.create_qp(QpInit(QpType.RC, small, small, 16, 1))
    target = Player(b.ctx)
    other.connect(target)
    target.connect(other)
    other.qp.post_send(
        [
            SendWr(n, WrOpcode.RDMA_WRITE, [other.sge(0, 1)], remote_addr=target.address,
                   rkey=target.mr.rkey)
            for n in range(8)
        ]
    )  # fmt: skip
    event = a.ctx.async_events.get_event(2)
    assert event is not None
    assert (event.type, event.number) == (EventType.CQ_ERROR, small.cqn)
    assert [wc.wr_id for wc in small.poll()] == [0, 1]


def test_memory_goes_away(hca_buses: Buses) -> None:
    """The guest's memory is unmapped under a busy device: nothing works, nothing falls over."""
    bus = hca_buses[0]
    ctx = open_hca(bus)
    a, b = connected(ctx, ctx)
    b.receive()
    hold = bus.client.memory(RAM_BASE)
    bus.client.dma_unmap(RAM_BASE, RAM_SIZE)
    a.send(WrOpcode.SEND, [a.sge(0, 8)])
    bus.write32(0, 0x80680 + 0x18, 1 << 23 | 1 << 21 | Opcode.QUERY_FW)
    bus.settle()
    del hold
    assert bus.read32(0, 0x80680 + 0x18) & 1 << 23 == 0


def test_guest_vanishes_in_the_middle(
    hca_server: tuple[ServerProcess, Path], contexts: tuple[Context, Context]
) -> None:
    """The peer's QEMU is killed: the other side's retries end, and the next guest may come."""
    a, b = Player(contexts[1]), Player(contexts[0])
    a.connect(b, timeout=8, retry_count=1)
    b.connect(a)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b)
    a.expect(OK)
    assert isinstance(contexts[0].adapter.bus, SocketBus)
    contexts[0].adapter.bus.client.socket.close()
    contexts[0].opened = False
    status = OK
    while status is OK:  # until the server has seen the end of the connection
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b)
        status = a.wait()[0].status
    assert status is WcStatus.RETRY_EXC_ERR
    bus = SocketBus(hca_server[1] / "a")
    try:
        with open_hca(bus) as again:
            player = Player(again)
            a.reconnect(player)
            player.connect(a)
            a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], player)
            a.expect(OK)
    finally:
        bus.close()


@pytest.mark.parametrize("bar", [0, 2])
@pytest.mark.parametrize("count", [8193, 1 << 17, 1 << 20])
def test_a_long_read_of_a_bar_fails(hca_buses: Buses, bar: int, count: int) -> None:
    hca_buses[0].client.read(bar, 0, count, expect=errno.EINVAL)
    assert hca_buses[0].client.alive()
