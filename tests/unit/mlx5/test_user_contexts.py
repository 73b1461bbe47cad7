"""User contexts and memory of users (DevX): what belongs to whom, and rings in such memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import CQC, MKC, RQTC, AccessMode
from bluebridge.device.layout.mlx5.cqe import CqeOpcode
from bluebridge.device.layout.mlx5.objects import (
    CONTEXT,
    CREATE_MKEY,
    ENTRY,
    GROUP_MEMBER,
    LIST,
    MODIFY_CQ,
    RESIZE,
)
from bluebridge.device.layout.mlx5.queue_pairs import QPC, Receives, Service
from bluebridge.device.layout.mlx5.steering import (
    FLOW_TABLE,
    MODIFY_FLOW_TABLE,
    QUERY_FLOW_COUNTER,
    Destination,
)
from bluebridge.device.layout.mlx5.user_contexts import CREATE_UCTX, RING_UMEM, SHARED, UserRight
from bluebridge.device.layout.mlx5.wqe import KeyMask, SendOpcode
from bluebridge.device.mlx5.rings.user_memory import MAX_PAGES
from bluebridge.device.mlx5.settings.capabilities import COUNTER_SETS
from bluebridge.device.mlx5.settings.refused import Refused
from tests.models.mlx5_keys import ACCESS, ENABLE, FREE, START, change, empty_key, updater_of
from tests.models.mlx5_node import Mlx5Node
from tests.models.mlx5_pair import Pair, RoceNode, opcodes
from tests.models.mlx5_pairs import Pair as Frames
from tests.models.mlx5_user import PAGE, UserNode, make_context, make_memory, memory_input

TEXT = b"from memory of a user " * 20


@pytest.fixture
def node() -> Mlx5Node:
    return Mlx5Node(1)


@pytest.fixture
def users() -> tuple[UserNode, UserNode]:
    """Two guests, each with a user context."""
    fabric = LocalFabric()
    nodes = UserNode(1, fabric), UserNode(2, fabric)
    for user in nodes:
        user.enter()
    return nodes


def page_of(node: Mlx5Node) -> int:
    return node.host.allocate(PAGE, PAGE)


def refused(make: Callable[[], object]) -> bool:
    """Whether an object of others may not be named in a new one."""
    with pytest.raises(Refused) as caught:
        make()
    return caught.value.status is Status.BAD_RES


# -- contexts ----------------------------------------------------------------------------------


def test_a_context_goes_after_its_objects(node: Mlx5Node) -> None:
    first = node.uid = make_context(node)
    domain = node.make(Opcode.ALLOC_PD)
    node.uid = 0
    assert node.status(Opcode.DESTROY_UCTX, number=first) is Status.BAD_RES_STATE
    node.uid = first
    node.command(Opcode.DEALLOC_PD, number=domain)
    node.uid = 0
    node.command(Opcode.DESTROY_UCTX, number=first)
    assert node.status(Opcode.DESTROY_UCTX, number=first) is Status.BAD_RES
    node.uid = first
    assert node.status(Opcode.ALLOC_PD) is Status.BAD_PARAM, "it is gone"


def test_objects_of_another_context_and_of_the_driver_are_not_there(node: Mlx5Node) -> None:
    drivers = node.make_cq().number
    first = node.uid = make_context(node)
    own = node.make_cq().number
    assert node.status(Opcode.QUERY_CQ, number=own) is Status.OK
    assert node.status(Opcode.QUERY_CQ, number=drivers) is Status.BAD_RES
    node.uid = make_context(node)
    assert node.status(Opcode.DESTROY_CQ, number=own) is Status.BAD_RES
    node.uid = 0
    assert node.status(Opcode.QUERY_CQ, number=own) is Status.OK, "a driver may do all"
    node.uid = first
    assert node.status(Opcode.DESTROY_CQ, number=own) is Status.OK
    assert node.status(Opcode.DESTROY_CQ, number=own) is Status.BAD_RES, "twice"


def test_what_a_driver_shares_every_context_may_query(node: Mlx5Node) -> None:
    node.uid = SHARED
    counters = node.make(Opcode.ALLOC_Q_COUNTER)
    node.uid = make_context(node)
    head = bytearray(0x20)
    head[0x1F] = counters
    assert node.status(Opcode.QUERY_Q_COUNTER, bytes(head)) is Status.OK
    own = node.make(Opcode.ALLOC_Q_COUNTER)
    node.uid = make_context(node)
    head[0x1F] = own
    assert node.status(Opcode.QUERY_Q_COUNTER, bytes(head)) is Status.BAD_RES


@pytest.mark.parametrize("field", ["pd", "cqn_send", "cqn_recv", "srqn"])
def test_nothing_is_made_of_objects_of_others(users: tuple[UserNode, UserNode], field: str) -> None:
    node = users[0]
    own = node.uid
    node.uid = make_context(node)
    others = {
        "pd": node.make(Opcode.ALLOC_PD), "cqn_send": node.make_cq().number,
        "cqn_recv": node.make_cq().number,
    }  # fmt: skip
    present, node.pd = node.pd, others["pd"]
    others["srqn"] = node.make_pool().number
    node.uid, node.pd = own, present
    own_pool = node.make_pool().number
    assert Pair(node, rq_type=Receives.SHARED, srqn=own_pool).number
    with pytest.raises(Refused, match="of another user context"):
        Pair(node, **{"rq_type": Receives.SHARED, "srqn": own_pool, field: others[field]})


def test_no_program_sends_into_the_xrc_domain_of_another(users: tuple[UserNode, UserNode]) -> None:
    """Its queue pair could fill receives of the others' SRQs; `mlx5_ib` makes those of XRC."""
    node = users[0]
    own, xrcd = node.uid, node.make(Opcode.ALLOC_XRCD)
    target = {"rq_type": Receives.NONE, "no_sq": 1, "xrcd": xrcd}
    assert Pair(node, Service.XRC, **target).number
    assert Pair(node, Service.XRC, rq_type=Receives.NONE).number, "one that sends names none"
    node.uid = 0
    assert Pair(node, Service.XRC, **target).number
    drivers = node.make(Opcode.ALLOC_XRCD)
    node.uid = own
    with pytest.raises(Refused, match="of another user context"):
        Pair(node, Service.XRC, **{**target, "xrcd": drivers})
    assert Pair(node, rq_type=Receives.NONE, xrcd=drivers).number, "Linux names one for RC, too"


def test_a_queue_pair_keeps_the_domain_that_it_was_made_in(
    users: tuple[UserNode, UserNode],
) -> None:
    pair = Pair(users[0])
    pair.init(pd=users[0].pd + 1, cqn_send=pair.rcq.number)
    found = {name: QPC.get(pair.context(), name) for name in ("pd", "cqn_send")}
    assert found == {"pd": users[0].pd, "cqn_send": pair.scq.number}


@pytest.mark.parametrize(
    "values", [{"reserved_lkey": 1}, {"fast_register": 1}, {"service": Service.UMR}]
)
def test_programs_have_no_queue_pair_that_needs_no_key(
    users: tuple[UserNode, UserNode], values: dict[str, int]
) -> None:
    with pytest.raises(Refused, match="BAD_PARAM"):
        Pair(users[0], **values)
    pair = Pair(users[0])
    if "reserved_lkey" in values:
        assert pair.change(Opcode.RST2INIT_QP, **values) is Status.BAD_PARAM


def test_programs_have_no_key_to_all_of_memory(node: Mlx5Node) -> None:
    data = bytearray(LIST)
    data[ENTRY : ENTRY + MKC.size] = MKC.pack(access_mode=AccessMode.PHYSICAL, length64=1)
    assert node.status(Opcode.CREATE_MKEY, bytes(data)) is Status.OK
    node.uid = make_context(node)
    assert node.status(Opcode.CREATE_MKEY, bytes(data)) is Status.BAD_PARAM


def test_what_linux_makes_for_a_program_goes_as_it_ends_it() -> None:
    """Linux `ib/qp.c: _create_user_qp, create_xrc_tgt_qp`, `ib/srq.c`, `ib/mr.c`.

    Pages of rings are listed, XRC and keys have no context, default objects are the driver's own.
    """
    fabric = LocalFabric()
    node, peer = RoceNode(1, fabric), RoceNode(2, fabric)
    updater, drivers_cq, drivers_pd = updater_of(node), node.make_cq(), node.pd
    xrcd = node.make(Opcode.ALLOC_XRCD)
    drivers_srq = node.make_xrc_srq(xrcd, drivers_cq)
    shared: dict[str, Value] = {"rq_type": Receives.SHARED, "cqn_recv": drivers_cq.number}

    uid = node.uid = make_context(node)
    domain = node.make(Opcode.ALLOC_TRANSPORT_DOMAIN)
    node.pd = node.make(Opcode.ALLOC_PD)
    pair, pool = Pair(node, Service.RC), node.make_pool()
    other = Pair(node, rq_type=Receives.SHARED, srqn=pool.number)
    node.uid = 0
    key = empty_key(node)
    page, values = node.memory(TEXT), {**ACCESS, "pd": node.pd, "start": START, "length": PAGE}
    change(updater, key, ENABLE | KeyMask.PD, [page & -PAGE], apart=True, values=values)
    srq = node.make_xrc_srq(xrcd, pair.rcq)
    sender = Pair(
        node, Service.XRC, **shared, srqn=drivers_srq.number, cqn_send=pair.scq.number
    )  # fmt: skip
    target = Pair(
        node, Service.XRC, **shared, srqn=drivers_srq.number, pd=drivers_pd, xrcd=xrcd, no_sq=1
    )  # fmt: skip
    node.uid = uid

    far = peer.make_pair()
    far.connect(pair)
    pair.connect(far)
    buffer = far.receive(1024)
    pair.post(SendOpcode.SEND, pair.data(TEXT, key)[:8] + (START + page % PAGE).to_bytes(8, "big"))
    assert opcodes(pair.sent()) == [CqeOpcode.REQUEST]
    assert peer.host.peek(buffer, len(TEXT)) == TEXT

    def end(opcode: Opcode, *numbers: int, context: int = uid) -> None:
        node.uid = context
        for number in numbers:
            assert node.status(opcode, number=number) is Status.OK, opcode

    end(Opcode.DESTROY_QP, sender.number, target.number, context=0)
    end(Opcode.DESTROY_XRC_SRQ, srq.number, context=0)
    change(updater, key, KeyMask.PD | KeyMask.KEY | KeyMask.FREE, values={**FREE, "pd": drivers_pd})
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 2
    end(Opcode.DESTROY_QP, pair.number, other.number)
    end(Opcode.DESTROY_RMP, pool.number)
    end(Opcode.DESTROY_CQ, *(each.number for each in (pair.scq, pair.rcq, other.scq, other.rcq)))
    end(Opcode.DEALLOC_PD, node.pd)
    end(Opcode.DEALLOC_TRANSPORT_DOMAIN, domain)
    end(Opcode.DESTROY_UCTX, uid, context=0)


def test_no_program_keeps_the_domain_of_another_by_a_key_in_it(
    users: tuple[UserNode, UserNode],
) -> None:
    node = users[0]
    own, uid, memory = node.pd, node.uid, make_memory(node, [page_of(node)])
    node.uid = make_context(node)
    others = node.pd = node.make(Opcode.ALLOC_PD)
    node.uid = uid
    assert node.status(Opcode.CREATE_MKEY, key_input(node, memory, 1)) is Status.BAD_RES
    node.uid = 0
    assert node.status(Opcode.DEALLOC_PD, number=others) is Status.OK
    node.uid, node.pd = uid, own
    assert node.status(Opcode.CREATE_MKEY, key_input(node, memory, 1)) is Status.OK
    assert node.status(Opcode.DEALLOC_PD, number=own) is Status.BAD_RES_STATE


@pytest.mark.parametrize("owner", ["driver", "program"])
def test_no_program_steers_frames_into_queues_of_others(node: Mlx5Node, owner: str) -> None:
    first = make_context(node)
    node.uid = first if owner == "program" else 0
    node.pd = node.make(Opcode.ALLOC_PD)
    node.domain = node.make(Opcode.ALLOC_TRANSPORT_DOMAIN)
    rq, table = node.make_rq(), node.make_table()
    rqt = node.make_rqt([rq])
    tir, counter = node.make_tir(rq), node.make(Opcode.ALLOC_FLOW_COUNTER)
    tisn = node.make_tis()
    node.uid, others = make_context(node), node.domain
    assert refused(lambda: node.make_tis())
    node.pd, node.domain = node.make(Opcode.ALLOC_PD), node.make(Opcode.ALLOC_TRANSPORT_DOMAIN)
    own, own_table = node.make_rq(), node.make_table()
    group, own_rqt = node.make_group(own_table, 0, 3), node.make_rqt([own])
    assert refused(lambda: node.make_rqt([own, rq]))
    change = bytes(CONTEXT) + bytes(RQTC.pack(actual_size=1)) + rq.number.to_bytes(4, "big")
    assert node.status(Opcode.MODIFY_RQT, change, number=own_rqt) is Status.BAD_RES
    assert refused(lambda: node.make_tir(rq))
    assert refused(lambda: node.make_tir(rqt=rqt))
    assert refused(lambda: node.make_tir(own, transport_domain=others))
    assert node.make_tir(own, transport_domain=0)  # DPDK has such ones for what it drops
    assert refused(lambda: node.make_sq(tisn=tisn))
    assert refused(lambda: node.make_table(miss_action=1, miss_table=table))
    change = bytes(MODIFY_FLOW_TABLE.pack(fields=1, table=own_table, miss_table=table))
    assert node.status(Opcode.MODIFY_FLOW_TABLE, change) is Status.BAD_RES
    assert node.make_table(level=1, miss_action=1, miss_table=own_table)
    for destination in ((Destination.TIR, tir), (Destination.FLOW_TABLE, table)):
        entry = node.entry(own_table, group, 0, [destination])
        assert node.status(Opcode.SET_FLOW_TABLE_ENTRY, entry) is Status.BAD_RES
    entry = node.entry(own_table, group, 0, [(Destination.TIR, node.make_tir(own))], [counter])
    assert node.status(Opcode.SET_FLOW_TABLE_ENTRY, entry) is Status.BAD_RES
    destinations = [(Destination.TIR, node.make_tir(rqt=own_rqt))]
    entry = node.entry(own_table, group, 0, destinations, [node.make(Opcode.ALLOC_FLOW_COUNTER)])
    assert node.status(Opcode.SET_FLOW_TABLE_ENTRY, entry) is Status.OK
    assert node.make_sq(tisn=node.make_tis()).number


def test_a_queue_in_a_table_stays_until_the_table_has_others(node: Mlx5Node) -> None:
    """Its number could become that of a queue of another program."""
    first, second = node.make_rq(), node.make_rq()
    rqt = node.make_rqt([first, first])
    tir = node.make_tir(rqt=rqt)
    assert node.status(Opcode.DESTROY_RQ, number=first.number) is Status.BAD_RES_STATE
    change = bytes(CONTEXT) + bytes(RQTC.pack(actual_size=1)) + second.number.to_bytes(4, "big")
    node.command(Opcode.MODIFY_RQT, change, number=rqt)
    assert node.status(Opcode.DESTROY_RQ, number=first.number) is Status.OK
    assert node.status(Opcode.DESTROY_RQ, number=second.number) is Status.BAD_RES_STATE
    assert node.status(Opcode.DESTROY_RQT, number=rqt) is Status.BAD_RES_STATE
    for opcode, number in (
        (Opcode.DESTROY_TIR, tir), (Opcode.DESTROY_RQT, rqt), (Opcode.DESTROY_RQ, second.number)
    ):  # fmt: skip
        assert node.status(opcode, number=number) is Status.OK
        assert node.status(opcode, number=number) is Status.BAD_RES, "twice"


def test_a_domain_named_after_the_pair_was_made_stays_with_it(
    users: tuple[UserNode, UserNode],
) -> None:
    node = users[0]
    node.uid = 0
    pd, other = node.make(Opcode.ALLOC_PD), node.make(Opcode.ALLOC_PD)
    pair = Pair(node, Service.UMR, pd=0)
    pair.init(pd=pd)
    node.command(Opcode.TORST_QP, number=pair.number)
    pair.init(pd=other)
    assert QPC.get(pair.context(), "pd") == pd
    assert node.status(Opcode.DEALLOC_PD, number=other) is Status.OK
    assert node.status(Opcode.DEALLOC_PD, number=pd) is Status.BAD_RES_STATE
    node.command(Opcode.DESTROY_QP, number=pair.number)
    assert node.status(Opcode.DEALLOC_PD, number=pd) is Status.OK


def test_a_shared_set_of_counters_is_not_ended_by_a_program(node: Mlx5Node) -> None:
    node.uid = SHARED
    shared = node.make(Opcode.ALLOC_Q_COUNTER)
    uid = node.uid = make_context(node)
    assert node.status(Opcode.DEALLOC_Q_COUNTER, number=shared) is Status.BAD_RES
    own = node.make(Opcode.ALLOC_Q_COUNTER)
    node.uid = 0
    assert node.status(Opcode.DEALLOC_Q_COUNTER, number=own | 1 << 8) is Status.OK
    assert node.status(Opcode.DESTROY_UCTX, number=uid) is Status.OK, "24 bits are no number"
    for _ in range(COUNTER_SETS - 1):
        node.make(Opcode.ALLOC_Q_COUNTER)
    assert node.status(Opcode.ALLOC_Q_COUNTER) is Status.LIM_ERR


def test_a_flow_counter_is_read_by_its_own_context(node: Mlx5Node) -> None:
    node.uid = make_context(node)
    data = bytes(QUERY_FLOW_COUNTER.pack(counter=node.make(Opcode.ALLOC_FLOW_COUNTER)))
    assert node.status(Opcode.QUERY_FLOW_COUNTER, data) is Status.OK
    node.uid = make_context(node)
    assert node.status(Opcode.QUERY_FLOW_COUNTER, data) is Status.BAD_RES


@pytest.mark.parametrize("opcode", [Opcode.TEARDOWN_HCA, Opcode.ACCESS_REG, Opcode.CREATE_UCTX])
def test_commands_on_the_adapter_are_a_drivers_alone(node: Mlx5Node, opcode: Opcode) -> None:
    node.uid = make_context(node)
    assert node.status(opcode, bytes(CREATE_UCTX.size)) is Status.BAD_PARAM
    assert node.adapter.initialised


def test_only_a_context_with_the_right_sends_frames() -> None:
    pair = Frames(UserNode)
    node = pair.a
    assert isinstance(node, UserNode)
    node.enter(0)
    with pytest.raises(Exception, match="may not send frames"):
        node.make_sq()
    node.enter(UserRight.RAW_SEND)
    sq, buffer = node.make_sq(), pair.b.post_receive(pair.rq)
    node.send(sq, pair.frame(TEXT))
    assert pair.b.host.peek(buffer, 14 + len(TEXT)) == pair.frame(TEXT)


def test_rights_that_there_are_not_are_refused(node: Mlx5Node) -> None:
    data = bytes(CREATE_UCTX.pack(rights=UserRight.DEVICE_RESOURCES))
    assert node.status(Opcode.CREATE_UCTX, data) is Status.BAD_PARAM


def test_groups_and_tables_of_others_cannot_be_changed(users: tuple[UserNode, UserNode]) -> None:
    node = users[0]
    member = bytes(GROUP_MEMBER.pack(qpn=Pair(node).number, gid=bytes(16)))
    table = node.make_table()
    node.make_group(table, 0, 3)
    node.uid = make_context(node)
    assert node.status(Opcode.ATTACH_TO_MCG, member) is Status.BAD_RES
    entry = node.entry(table, 0, 0)
    assert node.status(Opcode.SET_FLOW_TABLE_ENTRY, entry) is Status.BAD_RES


def test_groups_go_with_their_table(node: Mlx5Node) -> None:
    uid = node.uid = make_context(node)
    table = node.make_table()
    group = node.make_group(table, 0, 3)
    node.make_group(table, 4, 7)
    node.uid = make_context(node)
    data = bytes(FLOW_TABLE.pack(table=table, group=group))
    assert node.status(Opcode.DESTROY_FLOW_GROUP, data) is Status.BAD_RES
    node.uid = uid
    assert node.status(Opcode.DESTROY_FLOW_GROUP, data) is Status.OK
    assert node.status(Opcode.DESTROY_FLOW_TABLE, data) is Status.OK
    node.uid = 0
    assert node.status(Opcode.DESTROY_UCTX, number=uid) is Status.OK


def test_general_objects_are_refused_by_type(node: Mlx5Node) -> None:
    assert node.status(Opcode.CREATE_GENERAL_OBJECT, bytes(64)) is Status.BAD_PARAM


def test_no_port_is_joined_to_another(node: Mlx5Node) -> None:
    """UCX asks (QUERY_LAG), and takes a refusal for an error."""
    node.uid = make_context(node)
    assert not any(node.command(Opcode.QUERY_LAG)[8:])


# -- memory ------------------------------------------------------------------------------------


def test_messages_go_through_rings_and_records_in_memory_of_a_user(
    users: tuple[UserNode, UserNode],
) -> None:
    a, b = (Pair(user) for user in users)
    a.connect(b)
    b.connect(a)
    buffer = b.receive(1024)
    a.post(SendOpcode.SEND, a.data(TEXT))
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert opcodes(b.received()) == [CqeOpcode.RESPONSE_SEND]
    assert b.node.host.peek(buffer, len(TEXT)) == TEXT


def test_a_pool_of_receives_is_in_memory_of_a_user(users: tuple[UserNode, UserNode]) -> None:
    pool = users[1].make_pool()
    a, b = Pair(users[0]), Pair(users[1], rq_type=Receives.SHARED, srqn=pool.number)
    a.connect(b)
    b.connect(a)
    buffer = pool.post(1024)
    a.post(SendOpcode.SEND, a.data(TEXT))
    assert users[1].host.peek(buffer, len(TEXT)) == TEXT


def test_memory_stays_while_an_object_is_in_it(node: Mlx5Node) -> None:
    memory = make_memory(node, [page_of(node)])
    data = bytearray(LIST)
    data[ENTRY : ENTRY + CQC.size] = CQC.pack(log_size=4, eqn=node.eq)
    RING_UMEM.set(data, "ring_umem_valid", 1)
    RING_UMEM.set(data, "ring_umem", memory)
    cq = node.make(Opcode.CREATE_CQ, bytes(data))
    assert node.status(Opcode.DESTROY_UMEM, number=memory) is Status.BAD_RES_STATE
    node.command(Opcode.DESTROY_CQ, number=cq)
    assert node.status(Opcode.DESTROY_UMEM, number=memory) is Status.OK
    assert node.status(Opcode.CREATE_CQ, bytes(data)) is Status.BAD_RES, "it is gone"
    assert node.status(Opcode.DESTROY_UMEM, number=memory) is Status.BAD_RES


def test_a_ring_that_moves_takes_its_hold_on_memory_along(node: Mlx5Node) -> None:
    first, second = (make_memory(node, [page_of(node)]) for _ in range(2))
    data = bytearray(LIST)
    data[ENTRY : ENTRY + CQC.size] = CQC.pack(log_size=4, eqn=node.eq)
    RING_UMEM.set(data, "ring_umem_valid", 1)
    RING_UMEM.set(data, "ring_umem", first)
    cq = node.make(Opcode.CREATE_CQ, bytes(data))
    RING_UMEM.set(data, "ring_umem", second)
    MODIFY_CQ.set(data, "modifier", RESIZE)
    for _ in range(2):
        node.command(Opcode.MODIFY_CQ, bytes(data), number=cq)
    assert node.status(Opcode.DESTROY_UMEM, number=first) is Status.OK
    assert node.status(Opcode.DESTROY_UMEM, number=second) is Status.BAD_RES_STATE
    node.command(Opcode.DESTROY_CQ, number=cq)
    assert node.status(Opcode.DESTROY_UMEM, number=second) is Status.OK


def test_memory_of_another_context_is_not_there(node: Mlx5Node) -> None:
    node.uid = make_context(node)
    memory = make_memory(node, [page_of(node)])
    data = bytearray(LIST)
    data[ENTRY : ENTRY + CQC.size] = CQC.pack(log_size=4, eqn=node.eq)
    RING_UMEM.set(data, "ring_umem_valid", 1)
    RING_UMEM.set(data, "ring_umem", memory)
    node.uid = make_context(node)
    assert node.status(Opcode.CREATE_CQ, bytes(data)) is Status.BAD_RES
    node.uid = 0
    assert node.status(Opcode.CREATE_CQ, bytes(data)) is Status.OK


@pytest.mark.parametrize(
    ("field", "value"),
    [("ring_umem_offset", PAGE), ("ring_umem_offset", 1 << 63), ("ring_umem", 0xFFFFFFFF)],
)
def test_a_ring_outside_of_memory_is_refused(node: Mlx5Node, field: str, value: int) -> None:
    data = bytearray(LIST)
    data[ENTRY : ENTRY + CQC.size] = CQC.pack(log_size=4, eqn=node.eq)
    RING_UMEM.set(data, "ring_umem_valid", 1)
    RING_UMEM.set(data, "ring_umem", make_memory(node, [page_of(node)]))
    RING_UMEM.set(data, field, value)
    assert node.status(Opcode.CREATE_CQ, bytes(data)) in (Status.BAD_PARAM, Status.BAD_RES)
    assert node.make_cq().number, "nothing is lost"


@pytest.mark.parametrize("record", [PAGE - 4, PAGE, 1 << 63])
def test_a_record_outside_of_a_page_is_refused(node: Mlx5Node, record: int) -> None:
    memory = make_memory(node, [page_of(node)])
    context = CQC.pack(
        log_size=4, eqn=node.eq, record_umem_valid=1, record_umem=memory, doorbell_record=record
    )
    data = (bytes(ENTRY) + bytes(context)).ljust(LIST, b"\0") + node.pages(page_of(node), 1)
    assert node.status(Opcode.CREATE_CQ, data) is Status.BAD_PARAM


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"pages": 0}, Status.BAD_INP_LEN),
        ({"pages": 3}, Status.BAD_INP_LEN),
        ({"pages": 1 << 60}, Status.BAD_INP_LEN),
        ({"page_offset": PAGE}, Status.BAD_PARAM),
        ({"ats": 1}, Status.BAD_PARAM),
    ],
)
def test_lists_that_lie_are_refused(node: Mlx5Node, values: dict[str, int], status: Status) -> None:
    assert node.status(Opcode.CREATE_UMEM, memory_input([0, PAGE], **values)) is status


def test_pages_of_users_are_bounded(node: Mlx5Node) -> None:
    part = 1 << 18
    data = memory_input([PAGE] * part)
    made = [node.make(Opcode.CREATE_UMEM, data) for _ in range(MAX_PAGES // part)]
    assert node.status(Opcode.CREATE_UMEM, data) is Status.LIM_ERR
    node.command(Opcode.DESTROY_UMEM, number=made[0])
    assert node.status(Opcode.CREATE_UMEM, data) is Status.OK


def key_input(node: Mlx5Node, memory: int, pages: int, offset: int = 0) -> bytes:
    """The input of CREATE_MKEY for pages of a user's memory."""
    context = MKC.pack(
        access_mode=1, pd=node.pd, local_read=1, local_write=1, remote_read=1, qpn=0xFFFFFF,
        length=PAGE * pages, log_page_size=12,
    )  # fmt: skip
    data = bytearray(LIST)
    data[ENTRY : ENTRY + MKC.size] = context
    for name, value in (
        ("umem_valid", 1), ("umem", memory), ("umem_offset", offset), ("translations", pages),
    ):  # fmt: skip
        CREATE_MKEY.set(data, name, value)
    return bytes(data)


@pytest.mark.parametrize("shift", [12, 14])
def test_a_key_has_its_pages_from_memory_of_a_user(
    users: tuple[UserNode, UserNode], shift: int
) -> None:
    """Also from larger pages than its own, and from the second one on."""
    node, size = users[0], 1 << shift
    places = [node.host.allocate(size, size) for _ in range(2)]
    first = places[0] + size - PAGE
    node.host.poke(first, b"a" * PAGE)
    node.host.poke(places[1], b"b" * PAGE)
    memory = make_memory(node, places, log_page_size=shift - 12)
    key = node.make(Opcode.CREATE_MKEY, key_input(node, memory, 2, size - PAGE)) << 8
    a, b = (Pair(user) for user in users)
    a.connect(b)
    b.connect(a)
    buffer = b.receive(128)
    segment = a.data(bytes(128), key)[:8] + (PAGE - 64).to_bytes(8, "big")
    a.post(SendOpcode.SEND, segment)
    assert b.node.host.peek(buffer, 128) == b"a" * 64 + b"b" * 64


@pytest.mark.parametrize(("pages", "offset"), [(3, 0), (2, PAGE), (1, 1 << 63), (1 << 20, 0)])
def test_a_key_beyond_memory_is_refused(node: Mlx5Node, pages: int, offset: int) -> None:
    memory = make_memory(node, [page_of(node), page_of(node)])
    data = key_input(node, memory, pages, offset)
    assert node.status(Opcode.CREATE_MKEY, data) is Status.BAD_PARAM
    assert node.status(Opcode.DESTROY_UMEM, number=memory) is Status.OK


def test_a_reset_forgets_contexts_and_memory(node: Mlx5Node) -> None:
    node.uid = make_context(node)
    make_memory(node, [page_of(node)])
    node.adapter.clear()
    assert (len(node.adapter.users), node.adapter.objects.counts()["umem"]) == (0, 0)
