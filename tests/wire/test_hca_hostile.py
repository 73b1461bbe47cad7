"""A guest that breaks every rule of the adapter: it hurts itself, nobody else.

After each assault the server lives, has logged no traceback (the fixtures look) and the other
guest's traffic still flows.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from device.layout.mlx4.commands import Opcode
from device.layout.mlx4.contexts import CQC, QPC, QPC_MAILBOX_OFFSET
from device.layout.mlx4.eqe import EventType
from device.layout.mlx4.uar import NUM_UARS, PAGE_SIZE, SEND_DOORBELL
from guest.hca.reset import reset_device
from guest.verbs import (
    Context,
    FirmwareError,
    QpInit,
    QpState,
    QpType,
    SendWr,
    WcStatus,
    WrOpcode,
    open_device,
)
from tests.wire.bus import RAM_BASE, RAM_SIZE, WireBus
from tests.wire.client import CONFIG, Client
from tests.wire.players import PATTERN, Player, connected, settle
from tests.wire.server import ServerProcess

OK = WcStatus.SUCCESS
Buses = tuple[WireBus, WireBus]


@pytest.fixture
def attacker(contexts: tuple[Context, Context]) -> Context:
    """The guest that misbehaves."""
    return contexts[0]


@pytest.fixture(autouse=True)
def bystanders(contexts: tuple[Context, Context]) -> Iterator[None]:
    """Two queue pairs of the other guest: they work after the test as before it."""
    a, b = connected(contexts[1], contexts[1])
    yield
    a.view[:] = PATTERN
    a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
    a.expect(OK)
    assert bytes(b.view) == PATTERN


def ring(player: Player) -> memoryview:
    """The memory of both queues."""
    return player.qp._data


def knock(player: Player) -> None:
    """Ring the send doorbell and wait until the server has heard it."""
    bus = player.ctx.bus
    bus.write32(2, player.ctx.uar * PAGE_SIZE + SEND_DOORBELL, player.qp.qpn << 8)
    settle(player)


@pytest.mark.parametrize("seed", range(40))
def test_garbage_in_the_send_queue(contexts: tuple[Context, Context], seed: int) -> None:
    """Entries of random bytes whose ownership bit is right."""
    noise = random.Random(seed)
    a, b = connected(*contexts)
    b.receive()
    data = ring(a)
    stride = 1 << a.qp._sq_shift
    for slot in range(4):
        entry = bytearray(noise.randbytes(stride))
        entry[0] &= 0x7F
        opcodes = (0, 1, 8, 9, 0xA, 0xB, 0xE, 0x10, 0x11, 0x12, 0x14, 0x15, 0x18, 0x19, 0x1B)
        entry[3] = noise.choice(opcodes) if seed % 4 else noise.getrandbits(8)
        if seed & 1:
            entry[4:8] = struct.pack(">I", noise.randint(0, stride // 16))
        data[slot * stride : (slot + 1) * stride] = entry
    knock(a)
    assert not any(b.view)
    a.qp.query_state()


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
        ring(a)[: len(entry)] = entry
        knock(a)
        settle(a)
        assert not any(b.view)


@pytest.mark.parametrize("seed", range(10))
def test_random_doorbells(attacker: Context, seed: int) -> None:
    noise = random.Random(seed)
    player = Player(attacker)
    player.qp.modify_init()
    client = hostile_client(attacker)
    for _ in range(200):
        page = noise.choice((0, 1, 128, noise.randrange(NUM_UARS), NUM_UARS + 3))
        offset = noise.choice((0x14, 0x20, 0x24, 0x800, 0x808, 0x810, 4 * noise.randrange(1024)))
        width = noise.choice((1, 2, 4, 8)) if offset & 7 == 0 else 4
        client.write(2, page * PAGE_SIZE + offset, noise.randbytes(width), posted=True)
    settle(player)


def test_doorbells_of_unknown_queue_pairs(attacker: Context) -> None:
    player = Player(attacker)
    for qpn in (0, 1, 63, player.qp.qpn, player.qp.qpn + 1, 0x3FF, 0xFFFFFF):
        attacker.bus.write32(2, attacker.uar * PAGE_SIZE + SEND_DOORBELL, qpn << 8)
    settle(player)


def hostile_client(ctx: Context) -> Client:
    """The connection beneath a context."""
    assert isinstance(ctx.bus, WireBus)
    return ctx.bus.client


def test_random_commands(hca_buses: Buses, attacker: Context) -> None:
    """Every opcode with modifiers and mailboxes of any value; then a reset brings all back."""
    noise = random.Random(1)
    commands = attacker.commands
    refused = 0
    for opcode in sorted(set(range(0x70)) | {0xFF6, *range(0xFF9, 0x1000)}):
        for _ in range(4):
            modifier = noise.choice((0, 1, 2, 8, 0x48, noise.getrandbits(32)))
            data = noise.randbytes(4096) if noise.random() < 0.5 else bytes(4096)
            try:
                commands.run(opcode, modifier, noise.randrange(16), data=data)
            except FirmwareError:
                refused += 1
            try:
                commands.run(opcode, modifier, 0, param=noise.getrandbits(64))
            except FirmwareError:
                refused += 1
    assert refused > 100
    reset_device(hca_buses[0])
    attacker.commands._toggle = 1
    attacker._open = False
    with open_device(hca_buses[0]) as again:
        assert again.port_active


def test_mailbox_that_is_no_memory(attacker: Context) -> None:
    for address in (0, 0xFFF, 0xDEAD_0000_0000, (1 << 64) - 4096, RAM_BASE + RAM_SIZE - 16):
        with pytest.raises(FirmwareError):
            attacker.commands.run(Opcode.SW2HW_CQ, 0x90, param=address)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"mtt_addr": 0xFFFFFFFFF8},
        {"mtt_addr": 8 << 17},
        {"log_size": 31},
        {"log_page_size": 63},
        {"eqn": 0xFF},
        {"doorbell_record": 0xDEAD_0000_0000},
    ],
    ids=lambda values: next(iter(values)),
)
def test_cq_contexts(attacker: Context, spoilt: dict[str, int]) -> None:
    """Either refused, or a queue that harms nobody."""
    good = {"log_size": 4, "uar": 128, "eqn": attacker.async_events.eqn, "mtt_addr": 0x100}
    context = CQC.pack({**good, **spoilt})
    try:
        attacker.commands.run(Opcode.SW2HW_CQ, 0x90, data=context)
    except FirmwareError:
        return
    attacker.commands.run(Opcode.HW2SW_CQ, 0x90, 1)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"mtt_addr": 0xFFFFFFFFF8},
        {"log_sq_size": 15, "log_sq_stride": 7},
        {"log_rq_size": 15, "log_rq_stride": 7},
        {"log_page_size": 63},
        {"cqn_send": 0xFFFFFF},
        {"cqn_recv": 0xFFFFFF},
        {"use_srq": 1, "srqn": 0xFFFFFF},
        {"service": 0x55},
        {"pd": 0xFFFFFF},
        {"doorbell_record": 0xDEAD_0000_0000},
    ],
    ids=lambda values: next(iter(values)),
)
def test_qp_contexts(attacker: Context, spoilt: dict[str, int]) -> None:
    """Refused, or usable without harm: bring it to RTS, ring its doorbell, reset it."""
    player = Player(attacker)
    player.qp.modify_init()
    qpn = player.qp.qpn
    attacker.commands.run(Opcode.TORST_QP, qpn, 2)
    good: dict[str, int | bytes] = {
        "local_qpn": qpn, "uar": 128, "pd": player.pd.pdn, "log_sq_size": 4, "log_sq_stride": 3,
        "cqn_send": player.cq.cqn, "cqn_recv": player.cq.cqn, "mtt_addr": player.qp._mtt.address,
    }  # fmt: skip
    mailbox = bytes(QPC_MAILBOX_OFFSET) + bytes(QPC.pack({**good, **spoilt}))
    try:
        for opcode in (Opcode.RST2INIT_QP, Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
            attacker.commands.run(opcode, qpn, data=mailbox)
        attacker.bus.write32(2, attacker.uar * PAGE_SIZE + SEND_DOORBELL, qpn << 8)
        attacker.commands.run(Opcode.TOERR_QP, qpn, data=mailbox)
    except FirmwareError:
        pass
    attacker.commands.run(Opcode.TORST_QP, qpn, 2)


def test_receive_counter_out_of_nowhere(contexts: tuple[Context, Context]) -> None:
    """A doorbell record that claims 65535 receives: the entries are garbage, the sender is told."""
    a, b = connected(*contexts)
    b.qp._record_word[0] = 0xFFFFFFFF
    a.send(WrOpcode.SEND, [a.sge(0, 64)])
    (wc,) = a.wait()
    assert wc.status is not OK
    assert not any(b.view)
    b.qp.query_state()


def test_srq_whose_list_is_a_circle(contexts: tuple[Context, Context]) -> None:
    a, b = Player(contexts[0]), Player(contexts[1], srq=True)
    a.connect(b)
    b.connect(a)
    assert b.srq is not None
    for n in range(4):
        b.receive(n)
    stride = 1 << b.srq._shift
    for n, following in enumerate((0xFFFF, 0, 1, 0x8000)):
        b.srq._data[n * stride + 2 : n * stride + 4] = following.to_bytes(2, "big")
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
    ctx = open_device(bus)
    a, b = connected(ctx, ctx)
    b.receive()
    hold = bus.client.memory(RAM_BASE)
    bus.client.dma_unmap(RAM_BASE, RAM_SIZE)
    a.send(WrOpcode.SEND, [a.sge(0, 8)])
    bus.write32(0, 0x80680 + 0x18, 1 << 23 | 1 << 21 | Opcode.QUERY_FW)
    bus.settle()
    del hold
    assert bus.read32(0, 0x80680 + 0x18) & 1 << 23 == 0


def test_no_bus_master(hca_buses: Buses, attacker: Context) -> None:
    """Bus mastering off and on again in the middle of it."""
    a = Player(attacker)
    hca_buses[0].client.write(CONFIG, 4, struct.pack("<H", 2))
    knock(a)
    hca_buses[0].client.write(CONFIG, 4, struct.pack("<H", 6))
    knock(a)


def test_guest_vanishes_in_the_middle(
    hca_server: tuple[ServerProcess, Path], contexts: tuple[Context, Context]
) -> None:
    """The peer's QEMU is killed: the other side's retries end, and the next guest may come."""
    a, b = Player(contexts[1]), Player(contexts[0])
    a.connect(b, timeout=8, retry_count=1)
    b.connect(a)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b)
    a.expect(OK)
    assert isinstance(contexts[0].bus, WireBus)
    contexts[0].bus.client.socket.close()
    contexts[0]._open = False
    status = OK
    while status is OK:  # until the server has seen the end of the connection
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b)
        status = a.wait()[0].status
    assert status is WcStatus.RETRY_EXC_ERR
    bus = WireBus(hca_server[1] / "a")
    try:
        with open_device(bus) as again:
            player = Player(again)
            a.reconnect(player)
            player.connect(a)
            a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], player)
            a.expect(OK)
    finally:
        bus.close()
