"""The subnet administrator: records, paths, groups, services, and answers in segments."""

from __future__ import annotations

from typing import Any

import pytest

from bluebridge.device.fabric.subnet.packets import segments_of
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.mad import CLASS_PORT_INFO, MAD_SIZE, Method, MgmtClass
from bluebridge.device.layout.ib.sa import (
    INFORM_INFO,
    LINK_RECORD,
    MC_MEMBER_RECORD,
    NODE_RECORD,
    PATH_RECORD,
    PORT_INFO_RECORD,
    SA_MAD,
    SERVICE_RECORD,
    RmppFlag,
    RmppType,
    SaAttribute,
    SaMethod,
    SaStatus,
)
from tests.models.ib_node import IbNode, Subnet

SA_LID = 1
HEADER = 56
BROADCAST = bytes.fromhex("ff12401bffff000000000000ffffffff")
GROUP = bytes.fromhex("ff12401bffff00000000000000000001")


def query(
    table: Struct, attribute: int, method: int = Method.GET, *, modifier: int = 0, tid: int = 9,
    smkey: int = 0, **fields: Any,
) -> bytes:  # fmt: skip
    """A request whose component mask names the given fields."""
    mask = sum(1 << number for number, item in enumerate(table) if item.name in fields)
    mad = SA_MAD.pack(
        method=int(method), tid=tid, attr_id=attribute, attr_mod=modifier, component_mask=mask,
        sm_key=smkey,
    )  # fmt: skip
    mad[0:3] = bytes((1, MgmtClass.SUBN_ADM, 2))
    return (bytes(mad) + bytes(table.pack(fields))).ljust(MAD_SIZE, b"\0")


def ask(node: IbNode, mad: bytes) -> bytes:
    node.send_mad(node.gsi, SA_LID, mad, 1)
    ((wc, answer),) = node.mads(node.gsi)
    assert (wc.remote_qpn, SA_MAD.get(answer, "tid")) == (1, SA_MAD.get(mad, "tid"))
    assert SA_MAD.get(answer, "method") & 0x80
    return answer


def status_of(answer: bytes) -> int:
    return SA_MAD.get(answer, "status")


def table_of(node: IbNode, mad: bytes) -> list[bytes]:
    """All records of an answer in segments, acknowledged as `core/mad_rmpp.c` does."""
    node.send_mad(node.gsi, SA_LID, mad, 1)
    data, size, last = b"", 0, False
    while not last:
        ((_, segment),) = node.mads(node.gsi)
        flags, number = SA_MAD.get(segment, "rmpp_flags"), SA_MAD.get(segment, "segment")
        size = SA_MAD.get(segment, "attr_offset") * 8
        last = bool(flags & RmppFlag.LAST)
        length = SA_MAD.get(segment, "length_or_window") - 20 if last else 200
        data += segment[HEADER : HEADER + length]
        ack = bytearray(segment)
        SA_MAD.set(ack, "rmpp_type", int(RmppType.ACK))
        SA_MAD.set(ack, "length_or_window", number + 1)
        node.send_mad(node.gsi, SA_LID, ack, 1)
    assert node.mads(node.gsi) == []
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_class_port_info(subnet: Subnet) -> None:
    answer = ask(subnet.a, query(CLASS_PORT_INFO, SaAttribute.CLASS_PORT_INFO))
    info = CLASS_PORT_INFO.unpack(answer[HEADER:])
    assert (info["class_version"], info["capabilities2"]) == (2, 2)


def test_node_records(subnet: Subnet) -> None:
    rows = table_of(subnet.a, query(NODE_RECORD, SaAttribute.NODE, SaMethod.GET_TABLE))
    assert [NODE_RECORD.get(row, "lid") for row in rows] == [1, 2, 3]
    assert [NODE_RECORD.get(row, "node_type") for row in rows] == [2, 1, 1]
    assert NODE_RECORD.get_raw(rows[0], "description").startswith(b"bluebridge switch")
    answer = ask(subnet.a, query(NODE_RECORD, SaAttribute.NODE, lid=3))
    assert NODE_RECORD.get(answer[HEADER:], "port_guid") == subnet.b.agent.guid
    assert status_of(ask(subnet.a, query(NODE_RECORD, SaAttribute.NODE, lid=9))) == 0x300
    many = ask(subnet.a, query(NODE_RECORD, SaAttribute.NODE, node_type=1))
    assert status_of(many) == SaStatus.TOO_MANY_RECORDS


def test_tables_about_ports_and_links(subnet: Subnet) -> None:
    a = subnet.a
    get = SaMethod.GET_TABLE
    rows = table_of(a, query(PORT_INFO_RECORD, SaAttribute.PORT_INFO, get, lid=2))
    assert [PORT_INFO_RECORD.get(row, "port") for row in rows] == [1]
    rows = table_of(a, query(PORT_INFO_RECORD, SaAttribute.PORT_INFO, get, lid=1))
    assert len(rows) == 9
    rows = table_of(
        a,
        query(PORT_INFO_RECORD, SaAttribute.PORT_INFO, get, modifier=1 << 31, capabilities=1 << 16),
    )
    assert [PORT_INFO_RECORD.get(row, "lid") for row in rows] == [2, 3]
    rows = table_of(a, query(LINK_RECORD, SaAttribute.LINK, get))
    assert [row[:6].hex() for row in rows] == [
        "000101010002", "000201010001", "000102010003", "000301020001",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attribute", "count"),
    [
        (SaAttribute.SWITCH_INFO, 1), (SaAttribute.LINEAR_FORWARDING, 1), (SaAttribute.SM_INFO, 1),
        (SaAttribute.GUID_INFO, 3), (SaAttribute.PKEY_TABLE, 17),
    ],
)  # fmt: skip
def test_other_tables(subnet: Subnet, attribute: int, count: int) -> None:
    assert len(table_of(subnet.a, query(LINK_RECORD, attribute, SaMethod.GET_TABLE))) == count


def test_paths(subnet: Subnet) -> None:
    a, b = subnet.a, subnet.b
    both: dict[str, Any] = {"sgid": a.agent.gid(0), "dgid": b.agent.gid(0)}
    wishes: dict[str, Any] = {"paths": 1, "reversible": 1, "pkey": 0xFFFF, "traffic_class": 0}
    answer = ask(a, query(PATH_RECORD, SaAttribute.PATH, **both, **wishes))
    path = PATH_RECORD.unpack(answer[HEADER:])
    assert (path["slid"], path["dlid"], path["pkey"], path["mtu"]) == (2, 3, 0xFFFF, 5)
    assert (path["rate"], path["reversible"], path["hop_limit"]) == (7, 1, 0)
    rows = table_of(a, query(PATH_RECORD, SaAttribute.PATH, SaMethod.GET_TABLE, slid=2))
    assert [PATH_RECORD.get(row, "dlid") for row in rows] == [1, 2, 3]
    for fields, status in (
        ({"dgid": bytes(15) + b"\1"}, SaStatus.INVALID_GID),
        ({**both, "pkey": 0x8005}, SaStatus.NO_RECORDS),
        ({**both, "mtu_selector": 0, "mtu": 5}, SaStatus.NO_RECORDS),
    ):
        assert status_of(ask(a, query(PATH_RECORD, SaAttribute.PATH, **fields))) == status
    fine = ask(a, query(PATH_RECORD, SaAttribute.PATH, **both, mtu_selector=0, mtu=4))
    assert status_of(fine) == 0


def join(node: IbNode, mgid: bytes, state: int = 1, **more: int) -> bytes:
    return ask(
        node,
        query(
            MC_MEMBER_RECORD, SaAttribute.MC_MEMBER, Method.SET, mgid=mgid,
            port_gid=node.agent.gid(0), join_state=state, **more,
        ),
    )  # fmt: skip


def leave(node: IbNode, mgid: bytes, state: int = 1) -> int:
    request = query(
        MC_MEMBER_RECORD, SaAttribute.MC_MEMBER, SaMethod.DELETE, mgid=mgid,
        port_gid=node.agent.gid(0), join_state=state,
    )  # fmt: skip
    answer = ask(node, request)
    assert SA_MAD.get(answer, "method") == SaMethod.DELETE_RESP
    return status_of(answer)


def test_ipoib_joins_its_broadcast_group(subnet: Subnet) -> None:
    answer = join(subnet.a, BROADCAST, pkey=0xFFFF)
    record = MC_MEMBER_RECORD.unpack(answer[HEADER:])
    assert (record["mlid"], record["qkey"], record["mtu"], record["rate"]) == (0xC000, 0x0B1B, 5, 7)
    assert (record["join_state"], record["scope"]) == (1, 2)
    join(subnet.b, BROADCAST)
    assert subnet.fabric.switch.node.multicast[0xC000] == 0b110
    assert leave(subnet.a, BROADCAST) == 0
    assert subnet.fabric.switch.node.multicast[0xC000] == 0b100
    assert leave(subnet.a, BROADCAST) == SaStatus.INVALID_REQUEST


def test_groups_come_and_go_with_their_members(subnet: Subnet) -> None:
    agreed = {"qkey": 0x0B1B, "mtu_selector": 2, "mtu": 4, "service_level": 0, "pkey": 0xFFFF}
    assert status_of(join(subnet.a, GROUP, state=4)) == SaStatus.INVALID_REQUEST  # send-only
    answer = join(subnet.a, GROUP, **agreed)
    assert MC_MEMBER_RECORD.get(answer[HEADER:], "mlid") == 0xC001
    assert status_of(join(subnet.b, GROUP, qkey=5)) == SaStatus.INVALID_REQUEST
    assert status_of(join(subnet.b, GROUP, mtu=4, state=8)) == 0  # sends, hears nothing
    assert subnet.fabric.switch.node.multicast[0xC001] == 0b010
    get, attribute = SaMethod.GET_TABLE, SaAttribute.MC_MEMBER
    assert len(table_of(subnet.a, query(MC_MEMBER_RECORD, attribute, get))) == 2
    members = table_of(subnet.a, query(MC_MEMBER_RECORD, attribute, get, smkey=1, mgid=GROUP))
    assert [MC_MEMBER_RECORD.get(row, "join_state") for row in members] == [1, 8]
    assert leave(subnet.a, GROUP) == 0
    assert leave(subnet.b, GROUP, state=8) == 0
    assert 0xC001 not in subnet.fabric.switch.node.multicast
    assert len(table_of(subnet.a, query(MC_MEMBER_RECORD, attribute, get))) == 1


def test_a_port_that_goes_down_is_in_no_group(subnet: Subnet) -> None:
    join(subnet.a, BROADCAST)
    subnet.a.command(0x00A, modifier=1)
    assert subnet.fabric.switch.node.multicast[0xC000] == 0


def test_joins_that_are_refused(subnet: Subnet) -> None:
    a = subnet.a
    other = bytes.fromhex("ff12") + bytes(14)
    assert status_of(join(a, other)) == SaStatus.INSUFFICIENT_COMPONENTS
    assert status_of(join(a, BROADCAST, state=0)) == SaStatus.INSUFFICIENT_COMPONENTS
    complete = {"qkey": 1, "pkey": 0xFFFF, "service_level": 0, "flow_label": 0, "traffic_class": 0}
    assert status_of(join(a, b"\xfe" + bytes(15), **complete)) == SaStatus.INVALID_GID
    assert status_of(join(a, other, **complete, mtu_selector=0, mtu=5)) == SaStatus.INVALID_REQUEST
    stranger = query(
        MC_MEMBER_RECORD, SaAttribute.MC_MEMBER, Method.SET, mgid=BROADCAST,
        port_gid=subnet.b.agent.gid(0), join_state=1,
    )  # fmt: skip
    assert status_of(ask(a, stranger)) == SaStatus.INVALID_GID
    made_up = join(a, bytes(16), **complete)
    assert MC_MEMBER_RECORD.get_raw(made_up[HEADER:], "mgid").startswith(b"\xff\x12\xa0\x1b")


def test_services(subnet: Subnet) -> None:
    a = subnet.a
    fields: dict[str, Any] = {
        "service_id": 0x1234,
        "gid": a.agent.gid(0),
        "pkey": 0xFFFF,
        "name": b"n".ljust(64),
    }
    get = SaMethod.GET_TABLE
    assert status_of(ask(a, query(SERVICE_RECORD, SaAttribute.SERVICE, Method.SET, **fields))) == 0
    rows = table_of(subnet.b, query(SERVICE_RECORD, SaAttribute.SERVICE, get, service_id=0x1234))
    assert [SERVICE_RECORD.get_raw(row, "gid") for row in rows] == [a.agent.gid(0)]
    assert (
        status_of(ask(a, query(SERVICE_RECORD, SaAttribute.SERVICE, SaMethod.DELETE, **fields)))
        == 0
    )
    again = ask(a, query(SERVICE_RECORD, SaAttribute.SERVICE, SaMethod.DELETE, **fields))
    assert status_of(again) == SaStatus.NO_RECORDS
    stranger = query(SERVICE_RECORD, SaAttribute.SERVICE, Method.SET, **fields)
    assert status_of(ask(subnet.b, stranger)) == SaStatus.INVALID_GID


def test_subscriptions_are_accepted(subnet: Subnet) -> None:
    request = query(INFORM_INFO, SaAttribute.INFORM_INFO, Method.SET, subscribe=1, trap=0xFFFF)
    assert status_of(ask(subnet.a, request)) == 0
    request = query(INFORM_INFO, SaAttribute.INFORM_INFO, Method.SET, subscribe=2)
    assert status_of(ask(subnet.a, request)) == SaStatus.INVALID_REQUEST


def test_what_the_administrator_does_not_know(subnet: Subnet) -> None:
    assert status_of(ask(subnet.a, query(LINK_RECORD, 0x7777))) == SaStatus.BAD_METHOD
    silent = bytearray(query(LINK_RECORD, SaAttribute.LINK))
    silent[2] = 1  # an old class version
    subnet.a.send_mad(subnet.a.gsi, SA_LID, silent, 1)
    subnet.a.send_mad(subnet.a.gsi, SA_LID, query(LINK_RECORD, SaAttribute.LINK, 0x81), 1)
    assert subnet.a.mads(subnet.a.gsi) == []


def test_a_receiver_that_gives_up_ends_the_transfer(subnet: Subnet) -> None:
    a = subnet.a
    a.send_mad(a.gsi, SA_LID, query(NODE_RECORD, SaAttribute.NODE, SaMethod.GET_TABLE), 1)
    ((_, segment),) = a.mads(a.gsi)
    for kind in (RmppType.ABORT, RmppType.ACK):
        control = bytearray(segment)
        SA_MAD.set(control, "rmpp_type", int(kind))
        SA_MAD.set(control, "length_or_window", 9)
        a.send_mad(a.gsi, SA_LID, control, 1)
    assert a.mads(a.gsi) == []


@pytest.mark.parametrize(("length", "count"), [(0, 1), (1, 1), (200, 1), (201, 2), (1000, 5)])
def test_segments(length: int, count: int) -> None:
    segments = segments_of(bytes(HEADER), bytes(length))
    assert len(segments) == count
    assert {len(segment) for segment in segments} == {MAD_SIZE}
    flags = [SA_MAD.get(segment, "rmpp_flags") for segment in segments]
    assert flags[0] & RmppFlag.FIRST
    assert flags[-1] & RmppFlag.LAST
    if count > 1:
        assert SA_MAD.get(segments[0], "length_or_window") == length + 20 * count
    assert SA_MAD.get(segments[-1], "length_or_window") == length - 200 * (count - 1) + 20
