"""A driver reads back its port and its objects, through the registers of BAR0."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import MKC, NIC_VPORT, RQC, RQTC, TIRC, TISC
from bluebridge.device.layout.mlx5.objects import (
    CONTEXT,
    ENTRY,
    MODIFY_VPORT,
    QUERY_VPORT,
    VPORT_COUNTERS,
    VPORT_IN,
    VPORT_OUT,
    VPORT_STATE,
    VportField,
)
from bluebridge.device.layout.mlx5.port_registers import (
    IEEE_802_3,
    MCIA,
    PER_PRIORITY,
    PMLP,
    PMTU,
    PPCNT,
    PPCNT_COUNTERS,
    PTYS,
    RFC_2819,
    RFC_2863,
    CounterGroup,
)
from bluebridge.device.layout.mlx5.registers import RegisterId
from tests.models.mlx5_node import Mlx5Node, mac_of
from tests.models.mlx5_pairs import Pair
from tests.models.mlx5_queue_node import QueueNode

ADDRESSES = 2
FRAME, FCS = 64, 4


@pytest.fixture
def pair() -> Pair:
    """Two guests, of which the first has sent the second one frame."""
    pair = Pair(QueueNode)
    pair.b.post_receive(pair.rq)
    pair.a.send(pair.sq, pair.frame(bytes(FRAME - 14)))
    return pair


def counter(node: Mlx5Node, group: int, priority: int = 0) -> bytes:
    asked = bytes(PPCNT.pack(port=1, group=group, priority=priority))
    return node.register(RegisterId.PPCNT, asked, write=False)[PPCNT_COUNTERS:]


def test_each_group_of_counters_has_the_frame(pair: Pair) -> None:
    for node, sent in ((pair.a, 1), (pair.b, 0)):
        ieee = counter(node, CounterGroup.IEEE_802_3)
        assert IEEE_802_3.get(ieee, "frames_transmitted_ok") == sent
        assert IEEE_802_3.get(ieee, "octets_received_ok") == (1 - sent) * (FRAME + FCS)
        interface = counter(node, CounterGroup.RFC_2863)
        assert RFC_2863.get(interface, "out_unicast_packets") == sent
        assert RFC_2863.get(interface, "in_unicast_packets") == 1 - sent
        assert RFC_2819.get(counter(node, CounterGroup.RFC_2819), "packets") == 1 - sent
        for priority in range(8):  # without a tag it has priority 0
            found = counter(node, CounterGroup.PER_PRIORITY, priority)
            assert PER_PRIORITY.get(found, "tx_frames") == (sent if not priority else 0)
        assert not any(counter(node, CounterGroup.PHYSICAL))
        told = node.command(Opcode.QUERY_VPORT_COUNTER)
        assert VPORT_COUNTERS.get(told, "transmitted_unicast_packets") == sent


def test_frames_that_steering_drops_are_counted_at_the_physical_port_alone(pair: Pair) -> None:
    stranger = mac_of(7) + pair.a.mac + b"\x88\xb5" + bytes(FRAME - 14)
    pair.a.send(pair.sq, stranger)
    ieee = counter(pair.b, CounterGroup.IEEE_802_3)
    assert IEEE_802_3.get(ieee, "frames_received_ok") == 2
    assert IEEE_802_3.get(ieee, "octets_received_ok") == 2 * (FRAME + FCS)
    told = pair.b.command(Opcode.QUERY_VPORT_COUNTER)
    assert VPORT_COUNTERS.get(told, "received_unicast_packets") == 1
    assert pair.b.adapter.objects.port.counters.filtered == 1


def test_the_link_as_the_port_has_it(pair: Pair) -> None:
    a = pair.a
    asked = bytes(PTYS.pack(port=1, protocol=4))
    modes = a.register(RegisterId.PTYS, asked, write=False)
    assert PTYS.get(modes, "oper") & PTYS.get(modes, "capability")
    wanted = bytes(PTYS.pack(port=1, protocol=4, admin=PTYS.get(modes, "oper")))
    a.register(RegisterId.PTYS, wanted, write=True)
    chosen = a.register(RegisterId.PTYS, asked, write=False)
    assert PTYS.get(chosen, "admin") == PTYS.get(modes, "oper")
    assert PMLP.get(a.register(RegisterId.PMLP, bytes(PMLP.pack(port=1)), write=False), "width")
    mtu = bytes(PMTU.pack(port=1, admin=9000))
    a.register(RegisterId.PMTU, mtu, write=True)
    assert PMTU.get(a.register(RegisterId.PMTU, bytes(mtu), write=False), "oper") == 9000
    assert VPORT_STATE.get(a.command(Opcode.QUERY_VPORT_STATE), "state") == 1
    a.hca.ports[0].plug(False)
    assert VPORT_STATE.get(a.command(Opcode.QUERY_VPORT_STATE), "state") == 0
    assert not PTYS.get(a.register(RegisterId.PTYS, asked, write=False), "oper")


@pytest.mark.parametrize(("i2c", "page", "status"), [(0x50, 0, 0), (0x51, 0, 2), (0x50, 3, 2)])
def test_the_memory_of_the_cable(pair: Pair, i2c: int, page: int, status: int) -> None:
    asked = bytes(MCIA.pack(i2c=i2c, page=page, address=0, length=32))
    told = pair.a.register(RegisterId.MCIA, asked, write=False)
    assert MCIA.get(told, "status") == status
    assert any(MCIA.get_raw(told, "data")) == (not status)


def test_lists_of_addresses_come_back(pair: Pair) -> None:
    a = pair.a
    listed = b"".join(bytes(2) + mac_of(number) for number in (5, 6))
    head = bytes(MODIFY_VPORT.pack(fields=VportField.ADDRESSES)).ljust(VPORT_IN, b"\0")
    for kind in (0, 1):
        context = bytes(NIC_VPORT.pack(list_type=kind, list_size=ADDRESSES))
        a.command(Opcode.MODIFY_NIC_VPORT_CONTEXT, head + context + listed)
        asked = bytes(QUERY_VPORT.pack(list_type=kind))
        told = a.command(Opcode.QUERY_NIC_VPORT_CONTEXT, asked)[VPORT_OUT:]
        assert NIC_VPORT.get(told, "list_size") == ADDRESSES
        assert told[NIC_VPORT.size :].startswith(listed)
    other = bytes(QUERY_VPORT.pack(other=1, vport=1))
    assert a.status(Opcode.QUERY_NIC_VPORT_CONTEXT, other) is Status.BAD_PARAM
    unknown = bytes(QUERY_VPORT.pack(list_type=7))
    assert a.status(Opcode.QUERY_NIC_VPORT_CONTEXT, unknown) is Status.BAD_PARAM


def test_objects_are_told_as_they_were_made_until_they_are_gone(pair: Pair) -> None:
    a = pair.a
    rq = a.make_rq()
    tis = bytes(CONTEXT) + bytes(TISC.pack(transport_domain=a.domain))
    made: list[tuple[str, int, dict[str, Value]]] = [
        ("TIS", a.make(Opcode.CREATE_TIS, tis), {"transport_domain": a.domain}),
        ("TIR", a.make_tir(rq), {"rqn": rq.number}),
        ("RQT", a.make_rqt([rq]), {"actual_size": 1}),
        ("MKEY", a.make_key() >> 8, {"pd": a.pd}),
        ("RQ", a.make_rq().number, {"state": 1}),
    ]
    tables = {"TIS": TISC, "TIR": TIRC, "RQT": RQTC, "MKEY": MKC, "RQ": RQC}
    for name, number, values in made:
        query, end = Opcode[f"QUERY_{name}"], Opcode[f"DESTROY_{name}"]
        start = ENTRY if name == "MKEY" else CONTEXT
        told = a.command(query, number=number)[start:]
        assert {field: tables[name].get(told, field) for field in values} == values
        assert a.status(end, number=number) is Status.OK
        assert a.status(query, number=number) is Status.BAD_RES
        assert a.status(end, number=number) is Status.BAD_RES
    for name in ("TRANSPORT_DOMAIN", "Q_COUNTER"):
        number, end = a.make(Opcode[f"ALLOC_{name}"]), Opcode[f"DEALLOC_{name}"]
        assert a.status(end, number=number) is Status.OK
        assert a.status(end, number=number) is Status.BAD_RES
