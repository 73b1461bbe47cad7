"""The subnet: directed routes through the switch, the manager in it, forwarding by LID."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import Datagram, Message
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.layout.ib.link import MTU_2048, MTU_4096
from bluebridge.device.layout.ib.mad import (
    DIRECTION,
    MAD,
    NODE_INFO,
    NOTICE,
    PORT_COUNTERS,
    PORT_INFO,
    SM_INFO,
    SMP,
    SWITCH_INFO,
    Method,
    MgmtClass,
    SmpAttribute,
)
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.ports import SET_PORT_IB
from tests.models.ib_node import PERMISSIVE, IbNode, Subnet, smp

SWITCH_LID = 1


@pytest.fixture
def wild() -> Subnet:
    return Subnet(managed=False)


def explore(node: IbNode, request: bytearray) -> bytes:
    """Send a directed-route SMP; the answer that comes back."""
    node.send_mad(node.smi, PERMISSIVE, request, 0)
    ((wc, answer),) = node.mads(node.smi)
    assert (wc.remote_qpn, wc.raw[14:16], SMP.get(answer, "hop_pointer")) == (0, b"\xff\xff", 1)
    assert SMP.get(answer, "status") == DIRECTION
    return answer


def test_the_switch_answers_one_hop_away(wild: Subnet) -> None:
    answer = explore(wild.a, smp(SmpAttribute.NODE_INFO, path=b"\1"))
    info = NODE_INFO.unpack(SMP.get_raw(answer, "data"))
    assert (info["node_type"], info["ports"], info["local_port"]) == (2, 8, 1)
    assert SMP.get_raw(answer, "return_path")[1] == 1
    answer = explore(wild.b, smp(SmpAttribute.NODE_INFO, path=b"\1"))
    assert NODE_INFO.get(SMP.get_raw(answer, "data"), "local_port") == 2
    answer = explore(wild.a, smp(SmpAttribute.SWITCH_INFO, path=b"\1"))
    assert SWITCH_INFO.get(SMP.get_raw(answer, "data"), "linear_capacity") == 0xC000
    states = []
    for port in range(4):
        answer = explore(wild.a, smp(SmpAttribute.PORT_INFO, port, path=b"\1"))
        states.append(PORT_INFO.get(SMP.get_raw(answer, "data"), "state"))
    assert states == [2, 2, 2, 1]


def test_two_hops_lead_to_the_other_guest_and_back(wild: Subnet) -> None:
    """The test does as Linux `core/smi.c` does at both ends, step by step."""
    a, b = wild.a, wild.b
    a.send_mad(a.smi, PERMISSIVE, smp(SmpAttribute.NODE_INFO, path=b"\1\2"), 0)
    ((_, request),) = b.mads(b.smi)
    assert (SMP.get(request, "hop_pointer"), SMP.get_raw(request, "return_path")[1]) == (2, 1)
    answer = bytearray(b.mad_ifc(request))
    returned = bytearray(SMP.get_raw(request, "return_path"))
    returned[2] = 1
    SMP.set(answer, "return_path", bytes(returned))
    SMP.set(answer, "status", DIRECTION)
    b.send_mad(b.smi, PERMISSIVE, answer, 0)
    ((_, reply),) = a.mads(a.smi)
    assert SMP.get(reply, "hop_pointer") == 1
    info = NODE_INFO.unpack(SMP.get_raw(reply, "data"))
    assert info["node_guid"] == b.adapter.config.node_guid


@pytest.mark.parametrize(
    "change",
    [
        {"hop_count": 64}, {"hop_pointer": 9}, {"status": DIRECTION, "hop_pointer": 0},
        {"status": DIRECTION, "hop_pointer": 7},
        {"hop_count": 2, "initial_path": b"\0\1\x63".ljust(64, b"\0")},
        {"hop_count": 2, "initial_path": b"\0\1\5".ljust(64, b"\0")}, {"method": Method.GET_RESP},
    ],
)  # fmt: skip
def test_smps_that_lead_nowhere_are_dropped(wild: Subnet, change: dict[str, int | bytes]) -> None:
    request = smp(SmpAttribute.NODE_INFO, path=b"\1")
    for name, value in change.items():
        SMP.set(request, name, value)
    wild.a.send_mad(wild.a.smi, PERMISSIVE, request, 0)
    assert wild.a.mads(wild.a.smi) == wild.b.mads(wild.b.smi) == []


def test_the_manager_gives_lids_and_brings_links_into_service(subnet: Subnet) -> None:
    assert (subnet.a.agent.lid, subnet.b.agent.lid) == (2, 3)
    assert [node.agent.state for node in (subnet.a, subnet.b)] == [4, 4]
    assert subnet.a.agent.get("sm_lid") == SWITCH_LID
    ports = subnet.fabric.switch.node.ports
    assert [ports[number].state for number in range(4)] == [4, 4, 4, 1]
    table = subnet.fabric.switch.node.forwarding
    assert {lid: table[lid] for lid in (1, 2, 3, 9)} == {1: 0, 2: 1, 3: 2, 9: 8}


def test_service_comes_some_time_after_the_link() -> None:
    subnet = Subnet(settle=False)
    assert subnet.a.agent.state == 2
    subnet.clock.run(0.2)
    assert subnet.a.agent.state == 2
    subnet.clock.run(0.2)
    assert subnet.a.agent.state == 4


def test_a_link_has_the_mtu_that_both_ends_can(subnet: Subnet) -> None:
    """IPXE limits its port to 2048 bytes: `hermon.c: hermon_ib_open`."""
    node = subnet.a
    node.command(Opcode.CLOSE_PORT, 0, 1)
    node.command(Opcode.SET_PORT, bytes(SET_PORT_IB.pack(change_mtu=1, mtu=MTU_2048)), 1)
    node.command(Opcode.INIT_PORT, 0, 1)
    subnet.clock.run(10)
    assert (node.agent.lid, node.agent.state) == (2, 4)
    links = [node.agent, subnet.fabric.switch.node.ports[1], subnet.b.agent]
    assert [link.get("neighbour_mtu") for link in links] == [MTU_2048, MTU_2048, MTU_4096]
    subnet.b.hca.reset()  # and the manager goes on
    subnet.b.agent.open()
    subnet.clock.run(10)
    assert subnet.b.agent.state == 4


def test_a_port_that_comes_back_has_its_lid_again(subnet: Subnet) -> None:
    subnet.b.hca.reset()
    assert (subnet.b.agent.lid, subnet.b.agent.state) == (0, 1)
    third = IbNode("c", 3, subnet.fabric)
    subnet.clock.run(10)
    assert third.agent.lid == 4
    subnet.b.agent.open()
    subnet.clock.run(10)
    assert subnet.b.agent.lid == 3
    subnet.b.hca.close()
    assert subnet.fabric.topology.by_lid(b"\0\3") is None


def test_management_by_lid(subnet: Subnet) -> None:
    a = subnet.a
    a.send_mad(a.smi, SWITCH_LID, smp(SmpAttribute.NODE_INFO), 0)
    a.send_mad(a.smi, SWITCH_LID, smp(SmpAttribute.SM_INFO), 0)
    (first, node), (_, manager) = a.mads(a.smi)
    assert NODE_INFO.get(SMP.get_raw(node, "data"), "node_type") == 2
    assert first.raw[14:16] == SWITCH_LID.to_bytes(2, "big")
    info = SM_INFO.unpack(SMP.get_raw(manager, "data"))
    assert (info["state"], info["guid"]) == (3, subnet.fabric.switch.agent.guid)
    a.send_mad(a.smi, 3, smp(SmpAttribute.NODE_INFO), 0)
    assert len(subnet.b.mads(subnet.b.smi)) == 1
    a.send_mad(a.smi, 2, smp(SmpAttribute.NODE_INFO), 0)
    assert len(a.mads(a.smi)) == 1  # to itself
    a.send_mad(a.smi, 77, smp(SmpAttribute.NODE_INFO), 0)
    assert a.mads(a.smi) == []


def test_performance_counters_of_the_switch(subnet: Subnet) -> None:
    a = subnet.a
    header = MAD.pack(
        base_version=1, mgmt_class=MgmtClass.PERF, class_version=1, method=1, attr_id=0x12
    )
    mad = bytes(header).ljust(64, b"\0") + b"\0\1" + bytes(190)
    a.send_mad(a.gsi, SWITCH_LID, mad, 1)
    a.send_mad(a.gsi, SWITCH_LID, mad, 1)
    (_, _), (wc, answer) = a.mads(a.gsi)
    counters = PORT_COUNTERS.unpack(answer[64:])
    # two requests in, the first answer out
    assert (counters["rcv_packets"], counters["xmit_packets"]) == (2, 1)
    assert (wc.remote_qpn, a.agent.counters.xmit_packets) == (1, 2)


def test_general_traffic_waits_for_service(wild: Subnet) -> None:
    wild.a.send_mad(wild.a.gsi, 3, bytes(256), 1)
    assert wild.b.mads(wild.b.gsi) == []
    assert wild.a.agent.counters.xmit_discards == 1


def test_a_manager_elsewhere_sets_the_switch_and_gets_traps(wild: Subnet) -> None:
    """The way opensm goes: addresses, tables, states; then a link that drops is told."""
    a, switch = wild.a, wild.fabric.switch
    for path, port, lid in ((b"\1", 0, 5), (b"", 1, 6)):
        _bring_up(a, path, port, lid)
    _bring_up(a, b"\1", 1, 0)
    table = bytearray(b"\xff" * 64)
    table[5], table[6] = 0, 1
    explore(a, smp(SmpAttribute.LINEAR_FORWARDING, method=Method.SET, payload=table, path=b"\1"))
    a.send_mad(a.smi, 5, smp(SmpAttribute.NODE_INFO), 0)
    assert len(a.mads(a.smi)) == 1
    wild.b.command(0x00A, modifier=1)
    ((wc, trap),) = a.mads(a.smi)
    assert (SMP.get(trap, "method"), wc.raw[14:16]) == (Method.TRAP, b"\0\5")
    assert NOTICE.get(SMP.get_raw(trap, "data"), "trap") == 128
    wild.clock.run(1.5)
    assert len(a.mads(a.smi)) == 1  # again, as nobody said enough
    a.send_mad(a.smi, 5, smp(SmpAttribute.NOTICE, method=Method.TRAP_REPRESS), 0)
    wild.clock.run(10)
    assert a.mads(a.smi) == []
    assert SWITCH_INFO.get(switch.node.switch_info, "port_state_change") == 1


def _bring_up(node: IbNode, path: bytes, port: int, lid: int) -> None:
    """INIT to ARMED to ACTIVE by directed route; an empty path is the node itself."""
    for state in (3, 4):
        payload = PORT_INFO.pack(
            lid=lid, sm_lid=6, gid_prefix=0xFE80 << 48, neighbour_mtu=5, state=state
        )
        request = smp(
            SmpAttribute.PORT_INFO, port, method=Method.SET, payload=payload, path=path or None
        )
        if path:
            explore(node, request)
        else:
            assert SMP.get(node.mad_ifc(request), "status") == 0


def test_the_multicast_table_of_the_switch(wild: Subnet) -> None:
    table = (0b110).to_bytes(2, "big").ljust(64, b"\0")
    explore(
        wild.a, smp(SmpAttribute.MULTICAST_FORWARDING, method=Method.SET, payload=table, path=b"\1")
    )
    assert wild.fabric.switch.node.multicast[0xC000] == 0b110
    second = (1 << 28) | 0
    explore(
        wild.a,
        smp(
            SmpAttribute.MULTICAST_FORWARDING, second, method=Method.SET, payload=table, path=b"\1"
        ),
    )
    assert wild.fabric.switch.node.multicast[0xC000] == 0b110 << 16 | 0b110


def test_a_capability_that_changes_is_told_to_the_manager(subnet: Subnet) -> None:
    seen: list[Message] = []

    def note(source: FabricPort, message: Message) -> bool:
        seen.append(message)
        return True

    subnet.watched.watch = note
    subnet.a.agent.set_capabilities(0x10002)
    (message,) = seen
    assert isinstance(message, Datagram)
    assert NOTICE.get(SMP.get_raw(message.payload, "data"), "trap") == 144


def test_the_switch_has_only_so_many_ports() -> None:
    fabric = InfinibandFabric(ports=1)
    IbNode("a", 1, fabric)
    with pytest.raises(ValueError, match="1 ports"):
        IbNode("b", 2, fabric)


def test_the_manager_mends_what_somebody_else_set(subnet: Subnet) -> None:
    """Root in a guest can send any SMP; the next sweep puts things right."""
    table = bytes(64)
    request = smp(SmpAttribute.LINEAR_FORWARDING, method=Method.SET, payload=table, path=b"\1")
    explore(subnet.a, request)
    info = PORT_INFO.pack(lid=77, sm_lid=5)
    explore(subnet.a, smp(SmpAttribute.PORT_INFO, 0, method=Method.SET, payload=info, path=b"\1"))
    own = subnet.fabric.switch.agent
    assert own.lid == 77
    subnet.clock.run(1)
    assert (own.lid, own.state) == (SWITCH_LID, 4)
    subnet.a.send_mad(subnet.a.smi, 3, smp(SmpAttribute.NODE_INFO), 0)
    assert len(subnet.b.mads(subnet.b.smi)) == 1
