"""An InfiniBand port: its agents behind MAD_IFC, its states, its events."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ib.mad import (
    CLASS_PORT_INFO,
    MAD,
    NODE_INFO,
    PORT_COUNTERS,
    PORT_COUNTERS_EXTENDED,
    PORT_INFO,
    SMP,
    Method,
    MgmtClass,
    SmpAttribute,
    SmpStatus,
)
from bluebridge.device.layout.ib.sa import SA_MAD, SaAttribute
from bluebridge.device.layout.mlx4.capabilities import QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.eqe import (
    PORT_ACTIVE,
    PORT_DOWN,
    PORT_MNG_EQE,
    PORT_MNG_GUID_INFO,
    PORT_MNG_PKEY_TABLE,
    PORT_MNG_PORT_INFO,
    EventType,
)
from bluebridge.device.layout.mlx4.ports import SET_PORT_IB
from tests.models.ib_node import IbNode, Subnet, smp

GID_PREFIX = 0xFE80 << 48


@pytest.fixture
def fresh() -> Subnet:
    """Two guests, ports started, nobody manages the subnet."""
    return Subnet(managed=False)


def ask(node: IbNode, attribute: int, modifier: int = 0) -> bytes:
    answer = node.mad_ifc(smp(attribute, modifier))
    assert (SMP.get(answer, "status"), SMP.get(answer, "method")) == (0, Method.GET_RESP)
    return SMP.get_raw(answer, "data")


def tell(node: IbNode, attribute: int, payload: bytes | bytearray, modifier: int = 0) -> int:
    answer = node.mad_ifc(smp(attribute, modifier, method=Method.SET, payload=payload))
    return SMP.get(answer, "status")


def port_info(node: IbNode) -> bytearray:
    """PortInfo with the requests for states left out, ready for a Set."""
    info = bytearray(ask(node, SmpAttribute.PORT_INFO, 1))
    PORT_INFO.set(info, "state", 0)
    PORT_INFO.set(info, "physical_state", 0)
    return info


def events(node: IbNode) -> list[tuple[int, int, int]]:
    """Port events since the last look: type, subtype, and what changed (PortInfo)."""
    found = []
    for event in node.poll_eq(node.async_eq):
        kind, subtype, raw = event["type"], event["subtype"], event["data"]
        assert isinstance(kind, int) and isinstance(subtype, int) and isinstance(raw, bytes)
        if kind == EventType.PORT_MNG_CHG:
            assert PORT_MNG_EQE.get(bytes(4) + raw + bytes(4), "port") == 1
            found.append((kind, subtype, PORT_MNG_EQE.get(bytes(4) + raw + bytes(4), "changed")))
        elif kind == EventType.PORT_CHANGE:
            found.append((kind, subtype, 0))
    node.eq_doorbell(node.async_eq)
    return found


def test_query_port_says_infiniband(fresh: Subnet) -> None:
    port = QUERY_PORT.unpack(fresh.a.query(Opcode.QUERY_PORT, 1))
    assert (port["supported_types"], port["ib_mtu"], port["mac"]) == (1, 5, 0)
    assert (port["log_max_gids"], port["log_max_pkeys"]) == (3, 7)
    assert fresh.a.command(Opcode.SENSE_PORT, modifier=1) == 1


def test_what_the_agents_say_of_the_node(fresh: Subnet) -> None:
    a = fresh.a
    info = NODE_INFO.unpack(ask(a, SmpAttribute.NODE_INFO))
    guid = a.adapter.config.node_guid
    assert (info["node_type"], info["ports"], info["local_port"]) == (1, 1, 1)
    assert (info["node_guid"], info["port_guid"]) == (guid, guid + 0x100)
    assert ask(a, SmpAttribute.NODE_DESCRIPTION).startswith(b"bluebridge")
    a.command(Opcode.SET_NODE, b"renamed", 1)
    assert ask(a, SmpAttribute.NODE_DESCRIPTION) == b"renamed".ljust(64, b"\0")
    assert ask(a, SmpAttribute.GUID_INFO)[:16] == (guid + 0x100).to_bytes(8, "big") + bytes(8)
    assert ask(a, SmpAttribute.PKEY_TABLE)[:4] == b"\xff\xff\0\0"
    assert not any(ask(a, SmpAttribute.SL2VL_TABLE))
    assert not any(ask(a, SmpAttribute.MLNX_EXTENDED_PORT_INFO))


@pytest.mark.parametrize(
    ("attribute", "modifier", "method", "status"),
    [
        (SmpAttribute.SWITCH_INFO, 0, Method.GET, SmpStatus.BAD_ATTRIBUTE),
        (SmpAttribute.LINEAR_FORWARDING, 0, Method.GET, SmpStatus.BAD_ATTRIBUTE),
        (0x7777, 0, Method.GET, SmpStatus.BAD_ATTRIBUTE),
        (SmpAttribute.PORT_INFO, 7, Method.GET, SmpStatus.BAD_FIELD),
        (SmpAttribute.NODE_INFO, 0, Method.SET, SmpStatus.BAD_METHOD),
    ],
)
def test_refusals(
    fresh: Subnet, attribute: int, modifier: int, method: Method, status: SmpStatus
) -> None:
    answer = fresh.a.mad_ifc(smp(attribute, modifier, method=method))
    assert SMP.get(answer, "status") == status


def test_the_link_waits_in_init_for_a_manager(fresh: Subnet) -> None:
    info = PORT_INFO.unpack(ask(fresh.a, SmpAttribute.PORT_INFO))
    assert (info["state"], info["physical_state"], info["lid"]) == (2, 5, 0)
    assert (info["width_active"], info["speed_active"], info["mtu_cap"]) == (2, 4, 5)
    assert events(fresh.a) == []


def test_a_manager_brings_the_port_up_step_by_step(fresh: Subnet) -> None:
    a = fresh.a
    info = port_info(a)
    PORT_INFO.set(info, "state", 4)
    assert tell(a, SmpAttribute.PORT_INFO, info, 1) == SmpStatus.BAD_FIELD  # from INIT
    for name, value in {"lid": 7, "sm_lid": 3, "state": 3, "client_reregister": 1}.items():
        PORT_INFO.set(info, name, value)
    assert tell(a, SmpAttribute.PORT_INFO, info, 1) == 0
    assert events(a) == [(EventType.PORT_MNG_CHG, PORT_MNG_PORT_INFO, 0b1101)]
    assert ask(a, SmpAttribute.PORT_INFO)[32] & 15 == 3
    info = port_info(a)
    PORT_INFO.set(info, "state", 4)
    assert tell(a, SmpAttribute.PORT_INFO, info, 1) == 0
    assert events(a) == [(EventType.PORT_CHANGE, PORT_ACTIVE, 0)]
    assert a.port.mac_addresses == {b"\0\7"}
    a.command(Opcode.INIT_PORT, modifier=1)
    assert events(a) == [(EventType.PORT_CHANGE, PORT_ACTIVE, 0)]
    a.command(Opcode.CLOSE_PORT, modifier=1)
    assert events(a) == [(EventType.PORT_CHANGE, PORT_DOWN, 0)]
    assert ask(a, SmpAttribute.PORT_INFO)[32] & 15 == 1


def test_lmc_gives_several_lids(fresh: Subnet) -> None:
    info = port_info(fresh.a)
    PORT_INFO.set(info, "lid", 8)
    PORT_INFO.set(info, "lmc", 2)
    assert tell(fresh.a, SmpAttribute.PORT_INFO, info, 1) == 0
    assert fresh.a.port.mac_addresses == {bytes((0, lid)) for lid in (8, 9, 10, 11)}
    PORT_INFO.set(info, "lid", 0xBFFF)
    assert tell(fresh.a, SmpAttribute.PORT_INFO, info, 1) == SmpStatus.BAD_FIELD
    assert fresh.a.agent.lid == 8


def test_disabling_and_bouncing_a_port(fresh: Subnet) -> None:
    a = fresh.a
    info = port_info(a)
    PORT_INFO.set(info, "physical_state", 3)
    assert tell(a, SmpAttribute.PORT_INFO, info, 1) == 0
    found = PORT_INFO.unpack(ask(a, SmpAttribute.PORT_INFO))
    assert (found["state"], found["physical_state"]) == (1, 3)
    PORT_INFO.set(info, "physical_state", 2)
    assert tell(a, SmpAttribute.PORT_INFO, info, 1) == 0
    assert a.agent.state == 2
    PORT_INFO.set(info, "physical_state", 0)
    PORT_INFO.set(info, "state", 1)
    events(a)
    assert tell(a, SmpAttribute.PORT_INFO, info, 1) == 0
    assert (events(a), a.agent.state) == ([(EventType.PORT_CHANGE, PORT_DOWN, 0)], 2)


def test_tables_that_a_manager_sets(fresh: Subnet) -> None:
    a = fresh.a
    keys = b"\x7f\xff\x80\x01".ljust(64, b"\0")
    assert tell(a, SmpAttribute.PKEY_TABLE, keys) == 0
    assert ask(a, SmpAttribute.PKEY_TABLE)[:4] == keys[:4]
    guids = bytes(8) + (0x1234).to_bytes(8, "big")
    assert tell(a, SmpAttribute.GUID_INFO, guids) == 0
    assert ask(a, SmpAttribute.GUID_INFO)[8:16] == guids[8:]
    assert a.agent.guids[0] == a.adapter.config.port_guid(1)
    assert [event[1] for event in events(a)] == [PORT_MNG_PKEY_TABLE, PORT_MNG_GUID_INFO]
    assert tell(a, SmpAttribute.PKEY_TABLE, keys) == 0
    assert events(a) == []  # the same again changes nothing
    assert tell(a, SmpAttribute.SL2VL_TABLE, b"\x01\x23\x45\x67\0\0\0\0") == 0
    assert ask(a, SmpAttribute.SL2VL_TABLE)[:4] == b"\x01\x23\x45\x67"
    assert tell(a, SmpAttribute.VL_ARB_TABLE, b"\0\x40", 1 << 16) == 0
    assert ask(a, SmpAttribute.VL_ARB_TABLE, 1 << 16)[:2] == b"\0\x40"
    assert not any(ask(a, SmpAttribute.VL_ARB_TABLE, 3 << 16))


def test_set_port_changes_limits_and_capabilities(fresh: Subnet) -> None:
    a = fresh.a
    setting = {"change_mtu": 1, "mtu": 4, "change_vl": 1, "vl_count": 8, "capabilities": 0x10002}
    a.command(Opcode.SET_PORT, bytes(SET_PORT_IB.pack(setting)), 1)
    info = PORT_INFO.unpack(ask(a, SmpAttribute.PORT_INFO))
    assert (info["mtu_cap"], info["vl_cap"], info["capabilities"]) == (4, 4, 0x10002)
    bad = bytes(SET_PORT_IB.pack(change_vl=1, vl_count=9))
    assert a.try_command(Opcode.SET_PORT, bad, 1)[0] == Status.BAD_SIZE
    bad = bytes(SET_PORT_IB.pack(change_mtu=1, mtu=9))
    assert a.try_command(Opcode.SET_PORT, bad, 1)[0] == Status.BAD_PARAM


def test_a_reset_forgets_what_a_manager_said(fresh: Subnet) -> None:
    info = port_info(fresh.a)
    PORT_INFO.set(info, "lid", 9)
    tell(fresh.a, SmpAttribute.PORT_INFO, info, 1)
    fresh.a.hca.reset()
    assert (fresh.a.agent.lid, fresh.a.agent.state) == (0, 1)
    assert not fresh.a.port.mac_addresses


def test_trap_repress_needs_no_answer(fresh: Subnet) -> None:
    request = smp(SmpAttribute.NOTICE, method=Method.TRAP_REPRESS)
    assert fresh.a.try_command(Opcode.MAD_IFC, bytes(request), 1, 3, out=True)[0] == Status.OK


@pytest.mark.parametrize(("mgmt_class", "method"), [(7, 1), (1, 0x81), (4, 0x81), (0x0A, 1)])
def test_what_no_agent_answers(fresh: Subnet, mgmt_class: int, method: int) -> None:
    request = bytes(MAD.pack(mgmt_class=mgmt_class, method=method))
    assert fresh.a.try_command(Opcode.MAD_IFC, request, 1, 3, out=True)[0] == Status.BAD_PKT


def perf(node: IbNode, attribute: int, payload: bytes = b"\0\1", method: int = 1) -> bytes:
    """The answer of the performance management agent: its data."""
    header = MAD.pack(
        base_version=1, mgmt_class=MgmtClass.PERF, class_version=1, method=method, attr_id=attribute
    )
    answer = node.mad_ifc(bytes(header).ljust(64, b"\0") + payload)
    assert MAD.get(answer, "method") == Method.GET_RESP
    assert MAD.get(answer, "status") == 0
    return answer[64:]


def test_performance_counters(fresh: Subnet) -> None:
    a = fresh.a
    assert CLASS_PORT_INFO.get(perf(a, 1), "capabilities") == 1 << 9
    a.agent.counters.xmit_data = 1 << 33
    a.agent.counters.rcv_packets = 5
    a.agent.counters.multicast_rcv_packets = 2
    basic = PORT_COUNTERS.unpack(perf(a, 0x12))
    assert (basic["port"], basic["xmit_data"], basic["rcv_packets"]) == (1, 0xFFFFFFFF, 5)
    extended = PORT_COUNTERS_EXTENDED.unpack(perf(a, 0x1D))
    assert (extended["xmit_data"], extended["unicast_rcv_packets"]) == (1 << 33, 3)
    perf(a, 0x12, b"\0\1\xff\xff", Method.SET)
    assert PORT_COUNTERS.get(perf(a, 0x12), "rcv_packets") == 0
    request = bytes(MAD.pack(mgmt_class=MgmtClass.PERF, method=1, attr_id=0x12)).ljust(64, b"\0")
    assert MAD.get(a.mad_ifc(request + b"\0\7"), "status") == SmpStatus.BAD_FIELD


@pytest.mark.parametrize("asks", [False, True])
def test_a_driver_that_was_late_is_told_again(asks: bool) -> None:
    """Registering again breaks groups off: only those who never found the administrator must."""
    subnet = Subnet(settle=False)
    subnet.clock.run(1)
    assert PORT_MNG_PORT_INFO in [event[1] for event in events(subnet.a)]
    if asks:
        request = SA_MAD.pack(method=int(Method.GET), attr_id=int(SaAttribute.CLASS_PORT_INFO))
        request[0:3] = bytes((1, MgmtClass.SUBN_ADM, 2))
        subnet.a.send_mad(subnet.a.gsi, 1, bytes(request).ljust(256, b"\0"), 1)
        assert len(subnet.a.mads(subnet.a.gsi)) == 1
    subnet.clock.run(5)
    told = {True: PORT_MNG_PKEY_TABLE, False: PORT_MNG_PORT_INFO}
    assert [event[1] for event in events(subnet.a)] == [told[asks]]
    assert [event[1] for event in events(subnet.b)][-1] == PORT_MNG_PORT_INFO


def test_the_log_notes_cable_and_link(fresh: Subnet) -> None:
    """Once for each change; the link trains without a manager."""
    fresh.a.port.plug(False)
    fresh.a.port.plug(False)
    fresh.a.port.plug(True)
    up, down = {"port": 1, "cable": 1, "link": 1}, {"port": 1, "cable": 0, "link": 0}
    noted = fresh.a.host.facts(Fact.LINK)
    assert noted[0] == noted[-1] == up
    assert down in noted
    assert all(noted.count(each) == 1 for each in noted[1:-1])
