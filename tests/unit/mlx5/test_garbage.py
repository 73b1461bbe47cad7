"""Contexts, rings, keys and doorbells that make no sense: a status or an error, and nobody else."""

from __future__ import annotations

import random
from struct import pack

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx5 import caps
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import CQC, MKC, RQC, SQC, TIRC, WQ, QueueState
from bluebridge.device.layout.mlx5.cqe import Syndrome
from bluebridge.device.layout.mlx5.event_queues import EventType
from bluebridge.device.layout.mlx5.init_segment import SEND_DOORBELL
from bluebridge.device.layout.mlx5.objects import CONTEXT, ENTRY, LIST
from bluebridge.device.layout.mlx5.steering import Action
from bluebridge.device.layout.mlx5.wqe import INLINE, SendOpcode
from bluebridge.device.mlx5.commands.table import RULES
from bluebridge.device.mlx5.rings import page_lists
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rings import queue_buffer
from tests.models.mlx5_node import LOG_SQ, Mlx5Node, Queue, ethernet, mac_of, syndrome_of
from tests.models.mlx5_queue_node import QueueNode


@pytest.fixture(params=[Mlx5Node, QueueNode], ids=["tables", "registers"])
def node(request: pytest.FixtureRequest) -> Mlx5Node:
    node: Mlx5Node = request.param(1)
    node.open()
    node.events()
    return node


def create_cq(node: Mlx5Node, pages: int = 1, **values: int) -> Status:
    context = {"log_size": 6, "eqn": node.eq, **values}
    data = (bytes(ENTRY) + bytes(CQC.pack(context))).ljust(LIST, b"\0")
    return node.status(Opcode.CREATE_CQ, data + node.pages(0x1000, pages))


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"log_size": 31}, Status.BAD_PARAM),
        ({"log_size": 7}, Status.BAD_PARAM),
        ({"cqe_size": 1}, Status.BAD_PARAM),
        ({"collapsed": 1}, Status.BAD_PARAM),
        ({"compressed": 1}, Status.OK),
        ({"eqn": 9}, Status.BAD_RES),
        ({"log_page_size": 31}, Status.BAD_PARAM),
        ({"page_offset": 1}, Status.BAD_PARAM),
    ],
)
def test_completion_queues(node: Mlx5Node, values: dict[str, int], status: Status) -> None:
    assert create_cq(node, **values) == status
    assert create_cq(node) == Status.OK


def create_queue(node: Mlx5Node, opcode: Opcode, pages: int = 1, **work: int) -> Status:
    cq = node.make_cq()
    layout, own = (SQC, 6) if opcode is Opcode.CREATE_SQ else (RQC, 6)
    values = {"type": 1, "pd": node.pd, "log_stride": own, "log_size": 4, **work}
    context = bytes(layout.pack(cqn=work.pop("cqn", cq.number)))[:0x30]
    values.pop("cqn", None)
    data = bytes(CONTEXT) + context + bytes(WQ.pack(values)) + node.pages(0x1000, pages)
    return node.status(opcode, data)


@pytest.mark.parametrize("opcode", [Opcode.CREATE_SQ, Opcode.CREATE_RQ])
@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"log_size": 31}, Status.BAD_PARAM),
        ({"log_size": 7}, Status.BAD_PARAM),
        ({"log_stride": 0}, Status.BAD_PARAM),
        ({"log_stride": 15}, Status.BAD_PARAM),
        ({"page_offset": 31, "log_size": 6}, Status.BAD_PARAM),
        ({"cqn": 3}, Status.BAD_RES),
    ],
)
def test_queues(node: Mlx5Node, opcode: Opcode, values: dict[str, int], status: Status) -> None:
    assert create_queue(node, opcode, **values) == status
    assert node.adapter.objects.counts()["sq"] == node.adapter.objects.counts()["rq"] == 0
    assert create_queue(node, opcode) == Status.OK


@pytest.mark.parametrize("kind", [0, 2, 3])
def test_receive_queues_are_rings(node: Mlx5Node, kind: int) -> None:
    assert create_queue(node, Opcode.CREATE_RQ, type=kind) == Status.BAD_PARAM


def test_states_change_one_way(node: Mlx5Node) -> None:
    sq = node.make_sq()
    for known, wanted in ((0, 1), (3, 0), (1, 7), (1, 2)):
        with pytest.raises(Refused) as refused:
            node.modify_sq(sq.number, known, wanted)
        assert refused.value.status is Status.BAD_RES_STATE
    node.modify_sq(sq.number, QueueState.RDY, QueueState.ERR)
    with pytest.raises(Refused):
        node.modify_sq(sq.number, QueueState.ERR, QueueState.RDY)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"access_mode": 2, "length": 1}, Status.BAD_PARAM),
        ({"access_mode_high": 1}, Status.BAD_PARAM),
        ({"access_mode": 1, "length": 4096, "log_page_size": 12}, Status.BAD_PARAM),
        ({"access_mode": 1, "length": 1 << 63, "log_page_size": 12}, Status.BAD_PARAM),
        ({"access_mode": 1, "length": 4096, "log_page_size": 3}, Status.BAD_PARAM),
        ({"start": (1 << 64) - 1, "length": 2}, Status.BAD_PARAM),
    ],
)
def test_keys(node: Mlx5Node, values: dict[str, int], status: Status) -> None:
    before = node.adapter.objects.counts()["mkey"]
    data = (bytes(ENTRY) + bytes(MKC.pack(values))).ljust(LIST, b"\0")
    assert node.status(Opcode.CREATE_MKEY, data) == status
    assert node.adapter.objects.counts()["mkey"] == before


def test_there_are_as_many_keys_as_capabilities_say(node: Mlx5Node) -> None:
    most = 1 << caps.GENERAL.get(node.command(Opcode.QUERY_HCA_CAP)[16:], "log_max_mkey")
    node.adapter.objects.keys._numbers._next = most - 1  # all but one were made
    assert node.make_key() >> 8 == most - 1
    context = bytes(ENTRY) + bytes(MKC.pack(length64=1))
    assert node.status(Opcode.CREATE_MKEY, context.ljust(LIST, b"\0")) is Status.LIM_ERR


def test_there_are_as_many_flow_entries_as_capabilities_say(node: Mlx5Node) -> None:
    group = node.command(Opcode.QUERY_HCA_CAP, op_mod=2 * caps.CapGroup.FLOW_TABLE)[16:]
    properties = group[caps.NIC_RECEIVE : caps.NIC_RECEIVE + caps.FLOW_PROPERTIES.size]
    most = 1 << caps.FLOW_PROPERTIES.get(properties, "log_max_flow")
    table = node.make_table(log_size=4)
    flows = node.make_group(table, 0, 7)
    node.adapter.objects.flows._entries = most - 1  # all but one were made
    found = [
        node.status(
            Opcode.SET_FLOW_TABLE_ENTRY, node.entry(table, flows, index, action=Action.DROP)
        )
        for index in range(2)
    ]
    assert found == [Status.OK, Status.LIM_ERR]


def test_a_list_counts_as_far_as_the_command_says(node: Mlx5Node) -> None:
    page = node.host.allocate(4096)
    context = MKC.pack(access_mode=1, length=4096, log_page_size=12)
    data = (bytes(ENTRY) + bytes(context)).ljust(LIST, b"\0") + node.pages(page, 1)
    assert node.status(Opcode.CREATE_MKEY, data) == Status.BAD_PARAM
    told = data[:0x60] + (1).to_bytes(4, "big") + data[0x64:]
    assert node.status(Opcode.CREATE_MKEY, told) == Status.OK


def test_interfaces_need_their_queues(node: Mlx5Node) -> None:
    for values in ({"dispatch": 0, "rqn": 5}, {"dispatch": 1, "rqtn": 5}, {"dispatch": 7}):
        data = bytes(CONTEXT) + bytes(TIRC.pack(values))
        assert node.status(Opcode.CREATE_TIR, data) in (Status.BAD_RES, Status.BAD_PARAM)
    assert node.adapter.objects.counts()["tir"] == 0


def test_rings_have_a_limit_on_their_pages(node: Mlx5Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_buffer, "MAX_PAGES", node.adapter.pages.count + 2)
    assert [create_cq(node) for _ in range(3)] == [Status.OK, Status.OK, Status.LIM_ERR]
    assert page_lists.MAX_PAGE_SHIFT == 31


ENTRIES = [
    pytest.param(b"", {"size": 0}, Syndrome.LOCAL_QP_OP_ERR, id="no-size"),
    pytest.param(b"", {"size": 63}, Syndrome.LOCAL_QP_OP_ERR, id="longer-than-posted"),
    pytest.param(b"", {"opcode": 0x77}, Syndrome.LOCAL_QP_OP_ERR, id="opcode"),
    pytest.param(b"", {}, Syndrome.LOCAL_QP_OP_ERR, id="no-ethernet-segment"),
    pytest.param(
        pack(">12xH2x", 1000), {}, Syndrome.LOCAL_QP_OP_ERR, id="headers-longer-than-the-entry"
    ),
    pytest.param(ethernet(), {}, Syndrome.LOCAL_QP_OP_ERR, id="empty-frame"),
    pytest.param(
        ethernet() + pack(">I12x", INLINE | 900), {}, Syndrome.LOCAL_QP_OP_ERR, id="inline-length"
    ),
    pytest.param(
        ethernet() + pack(">IIQ", 60, 0x77777700, 0), {}, Syndrome.LOCAL_PROT_ERR, id="key"
    ),
    pytest.param(
        ethernet(b"h" * 54) + pack(">IIQ", 60, 0, 0), {"opcode": SendOpcode.LSO},
        Syndrome.LOCAL_QP_OP_ERR, id="large-send-without-mss",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("segments", "more", "syndrome"), ENTRIES)
def test_entries_of_send_queues(
    node: Mlx5Node, segments: bytes, more: dict[str, int], syndrome: Syndrome
) -> None:
    sq = node.make_sq()
    node.wqe(sq, segments, **more)
    node.ring(sq)
    first, *others = node.completions(sq)
    assert syndrome_of(first) == syndrome
    assert {syndrome_of(cqe) for cqe in others} <= {Syndrome.WR_FLUSH_ERR}


@pytest.mark.parametrize("mss", [0xFFFF, 10_000])
def test_a_large_send_of_frames_that_are_too_long_is_an_error(node: Mlx5Node, mss: int) -> None:
    sq = node.make_sq()
    ip = pack(">BBHHHBBH8s", 0x45, 0, 0, 7, 0, 64, 6, 0, b"\x0a\0\0\1\x0a\0\0\2")
    tcp = pack(">HHIIBBHHH", 1, 2, 0, 0, 0x50, 0x10, 0, 0, 0)
    headers = mac_of(2) + node.mac + b"\x08\0" + ip + tcp
    data = pack(">IIQ", 70_000, node.key, node.memory(70_000))
    node.wqe(sq, ethernet(headers, mss=mss) + data, SendOpcode.LSO)
    node.ring(sq)
    assert [syndrome_of(cqe) for cqe in node.completions(sq)] == [Syndrome.LOCAL_QP_OP_ERR]


def test_memory_beyond_the_guests_is_an_error(node: Mlx5Node) -> None:
    sq = node.make_sq()
    node.wqe(sq, ethernet() + pack(">IIQ", 60, node.key, 1 << 50))
    node.ring(sq)
    (cqe,) = node.completions(sq)
    assert syndrome_of(cqe) == Syndrome.LOCAL_PROT_ERR


def test_a_record_far_ahead_ends(node: Mlx5Node) -> None:
    """Entries that were never posted are carried out in turns, not for ever."""
    sq = node.make_sq()
    node.host.poke(sq.record + 4, (0x8000).to_bytes(4, "big"))
    node.ring(sq)
    assert len(node.completions(sq)) >= 1
    assert node.host.next_due > 1e9


def test_a_record_that_is_no_memory_is_told(node: Mlx5Node) -> None:
    cq = node.make_cq()
    work = WQ.pack(type=1, pd=node.pd, log_stride=6, log_size=LOG_SQ, doorbell_record=1 << 50)
    context = bytes(SQC.pack(cqn=cq.number))[:0x30] + bytes(work)
    number = node.make(Opcode.CREATE_SQ, bytes(CONTEXT) + context + node.pages(0x1000, 1))
    node.modify_sq(number, QueueState.RST, QueueState.RDY)
    node.ring(Queue(number, 0x1000, 0, cq))
    assert [event[1] for event in node.events()] == [EventType.WQ_CATASTROPHIC]


def test_doorbells_for_nobody_have_no_effect(node: Mlx5Node) -> None:
    cq = node.make_cq()
    for number in (0, cq.number, 0x1234, 0xFFFFFF):
        node.store(SEND_DOORBELL, pack(">II", 0, number << 8))
        node.store(0x20, pack(">II", 0, number))
    assert node.events() == []


def test_receives_that_are_too_small_cost_their_frame() -> None:
    fabric = LocalFabric()
    a, b = Mlx5Node(1, fabric), Mlx5Node(2, fabric)
    rq, sq = b.make_rq(), a.make_sq()
    b.steer(b.make_tir(rq))
    a.open()
    b.open()
    b.post_receive(rq, size=32)
    b.post_receive(rq)
    frame = mac_of(2) + mac_of(1) + b"\x88\xb5" + bytes(86)
    a.send(sq, frame)
    a.send(sq, frame)
    assert [syndrome_of(cqe) for cqe in b.completions(rq)] == [Syndrome.LOCAL_LENGTH_ERR, 0]


def test_what_stands_behind_the_end_of_a_list_is_not_used() -> None:
    """Linux leaves there what an earlier entry had (`mlx5e_init_frags_partition`)."""
    fabric = LocalFabric()
    a, b = Mlx5Node(1, fabric), Mlx5Node(2, fabric)
    rq, sq = b.make_rq(), a.make_sq()
    b.steer(b.make_tir(rq))
    a.open()
    b.open()
    b.post_receive(rq, size=64)
    stale = pack(">IIQ", 2048, b.key, 0x200000)
    b.host.poke(rq.address + 32, stale)
    a.send(sq, mac_of(2) + mac_of(1) + b"\x88\xb5" + bytes(86))
    assert [syndrome_of(cqe) for cqe in b.completions(rq)] == [Syndrome.LOCAL_LENGTH_ERR]


def test_a_ring_that_vanished_is_told() -> None:
    fabric = LocalFabric()
    a, b = Mlx5Node(1, fabric), Mlx5Node(2, fabric)
    base = 1 << 32
    b.host.map(base, 4096)
    rq, sq = b.make_rq(), a.make_sq()
    b.steer(b.make_tir(rq))
    a.open()
    b.open()
    b.host.unmap(base)
    b.post_receive(rq, address=base)
    a.send(sq, mac_of(2) + mac_of(1) + b"\x88\xb5" + bytes(86))
    assert [syndrome_of(cqe) for cqe in b.completions(rq)] == [Syndrome.LOCAL_PROT_ERR]


def test_random_inputs_end_with_a_status() -> None:
    """Each rule with random bytes: a status, never another exception."""
    dice = random.Random(46)
    node = Mlx5Node(1)
    node.open()
    node.make_sq()
    rq = node.make_rq()
    node.steer(node.make_tir(rq))
    opcodes = [Opcode(opcode) for opcode in RULES if opcode >= 0x200]
    for _ in range(3000):
        opcode = dice.choice(opcodes)
        data = bytearray(dice.randbytes(dice.choice((16, 64, 272, 0x340, 0x420, 2000))))
        if dice.random() < 0.7:  # numbers that there are, more often than chance has it
            data[8:12] = dice.choice((1, 2, 0x400, 0x1000, 0x1001)).to_bytes(4, "big")
        data[0x10:0x18] = bytes(8) if dice.random() < 0.5 else data[0x10:0x18]
        node.status(opcode, bytes(data))
    node.host.run(1.0)


def test_teardown_forgets_everything(node: Mlx5Node) -> None:
    rq = node.make_rq()
    sq = node.make_sq()
    node.steer(node.make_tir(rq))
    node.adapter.clear()
    assert set(node.adapter.objects.counts().values()) == {0}
    assert not node.adapter.objects.port.link_up
    before = len(node.host.events)
    node.ring(sq)
    assert len(node.host.events) == before


def test_teardown_ends_what_waits_for_its_turn(node: Mlx5Node) -> None:
    """Entries that a walk left for the next turn are not read any more."""
    sq = node.make_sq()
    for _ in range(1 << LOG_SQ):
        node.wqe(sq, b"", SendOpcode.NOP, flags=0)
    node.host.poke(sq.record + 4, (1000).to_bytes(4, "big"))
    node.store(SEND_DOORBELL, pack(">II", 0, sq.number << 8))
    node.adapter.clear()
    before = len(node.host.events)
    node.host.run()
    assert len(node.host.events) == before
