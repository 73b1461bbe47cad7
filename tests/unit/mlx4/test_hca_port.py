"""The port: link and its events, tables, steering, statistics, MADs, multicast records."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.ib.mad import (
    MAD,
    MAD_SIZE,
    NODE_INFO,
    PORT_INFO,
    SMP_DATA_OFFSET,
    Method,
    MgmtClass,
    SmpAttribute,
    SmpStatus,
)
from bluebridge.device.layout.mlx4.capabilities import (
    QUERY_PORT,
    SET_PORT_GENERAL,
    SET_PORT_RQP_CALC,
)
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, PORT_DOWN, PORT_EQE, EventType
from bluebridge.device.layout.mlx4.ports import ETH_STATS, MCG, ROCE_ADDRESS, SET_PORT_IB
from bluebridge.device.mlx4.ports.port_tables import MAX_GROUP_ADDRESSES
from bluebridge.device.rdma.ports.counters import Trouble
from tests.models.hca_commands import MAC
from tests.models.hca_driver import Driver

OTHER_MAC = bytes.fromhex("0200000000ff")
GIDS = [bytes(10) + b"\xff\xff" + bytes([192, 168, 69, last]) for last in (127, 128)]


def set_port(driver: Driver, form: SetPort, data: bytes | bytearray) -> Status:
    """SET_PORT, Ethernet form."""
    return driver.try_command(Opcode.SET_PORT, bytes(data), form << 8 | 1, 1)[0]


def changes(driver: Driver) -> list[int]:
    """Subtypes of the port events since the last call; each names port 1."""
    events = driver.events(EventType.PORT_CHANGE)
    for event in events:
        assert PORT_EQE.get(bytes(4) + bytes(event["data"]) + bytes(4), "port") == 1
    return [int(event["subtype"]) for event in events if isinstance(event["subtype"], int)]


def link_bit(driver: Driver) -> int:
    """Carrier, as mlx4_en sees it."""
    return QUERY_PORT.get(driver.query(Opcode.QUERY_PORT, 1), "link_up")


def test_the_link_follows_init_port_close_port_and_the_cable(driver: Driver) -> None:
    assert (link_bit(driver), driver.port.link_up) == (0, False)
    driver.command(Opcode.INIT_PORT, 0, 1)
    driver.command(Opcode.INIT_PORT, 0, 1)
    assert changes(driver) == [PORT_ACTIVE, PORT_ACTIVE]
    assert (link_bit(driver), driver.port.link_up) == (1, True)
    driver.port.plug(False)
    driver.port.plug(False)
    assert changes(driver) == [PORT_DOWN]
    driver.port.plug(True)
    assert changes(driver) == [PORT_ACTIVE]
    driver.command(Opcode.CLOSE_PORT, 0, 1)
    driver.command(Opcode.CLOSE_PORT, 0, 1)
    assert changes(driver) == [PORT_DOWN]
    assert (link_bit(driver), driver.port.link_up) == (0, False)


def test_query_port(driver: Driver) -> None:
    port = QUERY_PORT.unpack(driver.query(Opcode.QUERY_PORT, 1))
    assert port["supported_types"] == 2
    assert port["mac"] == int.from_bytes(MAC, "big")
    assert (port["link_speed"], port["log_max_gids"], port["log_max_macs"]) == (0x40, 7, 7)


@pytest.mark.parametrize(
    ("opcode", "modifier"),
    [
        (Opcode.QUERY_PORT, 2),
        (Opcode.INIT_PORT, 0),
        (Opcode.SET_PORT, 2),
        (Opcode.DUMP_ETH_STATS, 3),
        (Opcode.SET_MCAST_FLTR, 2),
        (Opcode.SET_VLAN_FLTR, 2),
        (Opcode.MAD_IFC, 2),
        (Opcode.SENSE_PORT, 2),
    ],
)
def test_there_is_one_port(driver: Driver, opcode: Opcode, modifier: int) -> None:
    assert driver.try_command(opcode, b"", modifier, 1)[0] == Status.BAD_INDEX


def test_the_mac_table(driver: Driver) -> None:
    assert driver.port.mac_addresses == {MAC}
    table = bytearray(128 * 8)
    table[3 * 8 : 4 * 8] = b"\x80\0" + OTHER_MAC
    assert set_port(driver, SetPort.MAC_TABLE, table) == Status.OK
    port = driver.port
    assert port.mac_addresses == {OTHER_MAC}
    assert tuple(map(driver.tables.mac_of, (3, 0, 127))) == (OTHER_MAC, MAC, MAC)
    set_port(driver, SetPort.MAC_TABLE, bytes(1024))
    assert driver.port.mac_addresses == {MAC}


def test_the_gid_table(driver: Driver) -> None:
    table = bytearray(128 * 16)
    table[2 * 16 : 4 * 16] = GIDS[0] + GIDS[1]
    assert set_port(driver, SetPort.GID_TABLE, table) == Status.OK
    assert tuple(map(driver.tables.gid, (2, 3))) == (GIDS[0], GIDS[1])
    assert driver.tables.gid(0) == driver.tables.gid(200) == GIDS[0]
    roce = bytes(ROCE_ADDRESS.pack(gid=GIDS[1], version=2)).ljust(128 * 32, b"\0")
    assert set_port(driver, SetPort.ROCE_ADDR, roce) == Status.OK
    assert driver.tables.gid(0) == GIDS[1]


def test_the_vlan_table(driver: Driver) -> None:
    table = bytearray(512)
    table[8:12] = (1 << 31 | 100).to_bytes(4, "big")
    assert set_port(driver, SetPort.VLAN_TABLE, table) == Status.OK
    assert [driver.tables.vlan(index) for index in (0, 2, 128)] == [None, 100, None]


def test_steering(driver: Driver) -> None:
    data = SET_PORT_RQP_CALC.pack(base_qpn=0x40, log_macs=7, mcast_qpn=0x41, mcast_mode=1)
    assert set_port(driver, SetPort.RQP_CALC, data) == Status.OK
    steering = driver.tables.receivers
    assert (steering.unicast, steering.multicast, steering.promiscuous) == (0x40, 0x41, None)
    SET_PORT_RQP_CALC.set(data, "promisc_enable", 1)
    SET_PORT_RQP_CALC.set(data, "promisc_qpn", 0x42)
    set_port(driver, SetPort.RQP_CALC, data)
    assert driver.tables.receivers.promiscuous == 0x42


def test_other_forms_of_set_port(driver: Driver) -> None:
    general = SET_PORT_GENERAL.pack(flags=7, mtu=4126)
    assert set_port(driver, SetPort.GENERAL, general) == Status.OK
    assert driver.tables.mtu == 4126
    SET_PORT_GENERAL.set(general, "mtu", 60000)
    assert set_port(driver, SetPort.GENERAL, general) == Status.BAD_PARAM
    assert set_port(driver, SetPort.PRIO2TC, b"") == Status.OK
    assert set_port(driver, SetPort.VXLAN, b"") == Status.BAD_OP
    assert driver.try_command(Opcode.SET_PORT, b"", 1, 4)[0] == Status.BAD_OP
    driver.command(Opcode.SET_PORT, bytes(SET_PORT_IB.pack(capabilities=0x10000)), 1)
    assert driver.tables.capabilities == 0x10000


def test_filters(driver: Driver) -> None:
    group = 0x01005E000001
    driver.command(Opcode.SET_MCAST_FLTR, 0, 1, 1)
    driver.command(Opcode.SET_MCAST_FLTR, 1 << 63 | 0xFFFFFFFFFFFF, 1)
    driver.command(Opcode.SET_MCAST_FLTR, group, 1)
    driver.command(Opcode.SET_MCAST_FLTR, 0, 1, 2)
    tables = driver.tables
    assert tables.multicast_filter == {b"\xff" * 6, group.to_bytes(6, "big")}
    assert tables.multicast_filter_on
    driver.command(Opcode.SET_VLAN_FLTR, bytes(511) + b"\1", 1)
    assert tables.vlan_filter[-1] == 1
    assert driver.try_command(Opcode.SET_MCAST_FLTR, 0, 1, 3)[0] == Status.BAD_OP
    for address in range(MAX_GROUP_ADDRESSES - 2):
        driver.command(Opcode.SET_MCAST_FLTR, 0x333300000000 | address, 1)
    assert driver.try_command(Opcode.SET_MCAST_FLTR, 3, 1)[0] == Status.EXCEED_LIM
    driver.command(Opcode.SET_MCAST_FLTR, group, 1)


def test_statistics(driver: Driver) -> None:
    counters = driver.port.counters
    counters.receive([b"\xff" * 12 + b"\x08\0"] * 5, wanted=True)
    counters.receive([b"\x33" * 12 + b"\x81\0\x60\x01\x08\0"] * 2, wanted=True)
    counters.rx.dropped, counters.tx.octets[3] = 1 << 40, 1 << 40
    stats = ETH_STATS.unpack(driver.query(Opcode.DUMP_ETH_STATS, 1 << 8 | 1))
    assert (stats["rx_frames_8"], stats["rx_broadcast_8"], stats["rx_octets_8"]) == (5, 5, 70)
    assert (stats["rx_frames_3"], stats["rx_multicast_3"], stats["rx_total_frames"]) == (2, 2, 7)
    assert (stats["rx_dropped"], stats["rx_no_buffer"]) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert (stats["tx_octets_3"], stats["tx_octets_0"]) == (1 << 40, 0)
    assert ETH_STATS.get(driver.query(Opcode.DUMP_ETH_STATS, 1), "rx_frames_8") == 0


def test_special_queue_pairs(driver: Driver) -> None:
    assert driver.port.tables.gsi_qpn == driver.port.tables.smi_qpn == -1
    driver.command(Opcode.CONF_SPECIAL_QP, 0, 512)
    assert (driver.port.tables.smi_qpn, driver.port.tables.gsi_qpn) == (512, 514)
    assert driver.try_command(Opcode.CONF_SPECIAL_QP, 0, 513)[0] == Status.BAD_PARAM
    assert driver.try_command(Opcode.CONF_SPECIAL_QP, 0, 1 << 20)[0] == Status.BAD_PARAM
    driver.command(Opcode.CONF_SPECIAL_QP, 0, 0)
    assert driver.port.tables.gsi_qpn == -1


# -- MADs ------------------------------------------------------------------------------------------


def mad(driver: Driver, attribute: int, modifier: int = 0, mgmt_class: int = 1) -> bytes:
    """The answer to a Get."""
    request = MAD.pack(
        base_version=1, mgmt_class=mgmt_class, class_version=1, method=Method.GET,
        tid=0x1122334455667788, attr_id=attribute, attr_mod=modifier,
    )  # fmt: skip
    answer = driver.query(Opcode.MAD_IFC, 1, 3, bytes(request))[:MAD_SIZE]
    assert MAD.get(answer, "method") == Method.GET_RESP
    assert MAD.get(answer, "tid") == 0x1122334455667788
    return answer


def test_node_info_and_description(driver: Driver) -> None:
    info = NODE_INFO.unpack(mad(driver, SmpAttribute.NODE_INFO)[SMP_DATA_OFFSET:])
    assert info["node_guid"] == 0x0000000300000A01
    assert (info["port_guid"], info["node_type"], info["vendor_id"]) == (
        0x0000000300000B01,
        1,
        0x0002C9,
    )
    text = mad(driver, SmpAttribute.NODE_DESCRIPTION)[SMP_DATA_OFFSET:]
    assert text.startswith(b"bluebridge")
    driver.command(Opcode.SET_NODE, b"renamed", 1)
    text = mad(driver, SmpAttribute.NODE_DESCRIPTION)[SMP_DATA_OFFSET:]
    assert text.startswith(b"renamed\0")


def test_port_info_follows_the_link(driver: Driver) -> None:
    assert PORT_INFO.get(mad(driver, SmpAttribute.PORT_INFO)[SMP_DATA_OFFSET:], "state") == 1
    driver.command(Opcode.INIT_PORT, 0, 1)
    assert PORT_INFO.get(mad(driver, SmpAttribute.PORT_INFO)[SMP_DATA_OFFSET:], "state") == 4


def test_tables_of_the_subnet_agent(driver: Driver) -> None:
    assert mad(driver, SmpAttribute.PKEY_TABLE)[SMP_DATA_OFFSET:][:4] == b"\xff\xff\0\0"
    assert mad(driver, SmpAttribute.GUID_INFO)[SMP_DATA_OFFSET:][:8].hex() == "0000000300000b01"
    assert not any(mad(driver, SmpAttribute.GUID_INFO, 1)[SMP_DATA_OFFSET:])
    assert not any(mad(driver, SmpAttribute.SL2VL_TABLE)[SMP_DATA_OFFSET:])
    assert not any(mad(driver, 0x12, 0, MgmtClass.PERF)[SMP_DATA_OFFSET:])


def test_unknown_attributes_and_classes(driver: Driver) -> None:
    answer = mad(driver, SmpAttribute.SWITCH_INFO)
    assert MAD.get(answer, "status") == SmpStatus.BAD_ATTRIBUTE
    request = bytes(MAD.pack(mgmt_class=MgmtClass.CM, method=Method.GET))
    assert driver.try_command(Opcode.MAD_IFC, request, 1, 3, out=True)[0] == Status.BAD_PKT


# -- multicast -------------------------------------------------------------------------------------


def test_multicast_records_and_their_chain(driver: Driver) -> None:
    group, other = bytes(15) + b"\1", bytes(15) + b"\2"
    bucket = driver.command(Opcode.MGID_HASH, group)
    assert bucket < 1 << 12
    assert not any(driver.query(Opcode.READ_MCG, bucket))
    first = MCG.pack(next_index=4096, members=1, gid=other) + (5).to_bytes(4, "big")
    driver.command(Opcode.WRITE_MCG, bytes(first), bucket)
    assert driver.adapter.multicast.members(group) == []
    second = MCG.pack(members=2, gid=group) + bytes.fromhex("0000060040000700")
    driver.command(Opcode.WRITE_MCG, bytes(second), 4096)
    assert driver.adapter.multicast.members(group) == [(0x600, False), (0x700, True)]
    MCG.set(second, "protocol", 2)
    driver.command(Opcode.WRITE_MCG, bytes(second), 4096)
    assert driver.adapter.multicast.members(group) == []
    MCG.set(second, "protocol", 0)
    driver.command(Opcode.WRITE_MCG, bytes(second), 4096)
    assert driver.query(Opcode.READ_MCG, 4096)[: len(second)] == bytes(second)
    MCG.set(second, "next_index", bucket)
    MCG.set(second, "gid", other)
    driver.command(Opcode.WRITE_MCG, bytes(second), 4096)
    assert driver.adapter.multicast.members(group) == []
    assert driver.try_command(Opcode.READ_MCG, 0, 1 << 13, out=True)[0] == Status.BAD_INDEX
    assert driver.try_command(Opcode.WRITE_MCG, b"", 0, 2)[0] == Status.BAD_OP


def test_diagnostic_counters_exist(driver: Driver) -> None:
    driver.port.diagnostics.add(Trouble.DATAGRAM_WITHOUT_RECEIVE)  # this card has none for it
    assert not any(driver.query(Opcode.DIAG_RPRT, 0, 2))
    assert driver.try_command(Opcode.DIAG_RPRT, 0, 0, 1, out=True)[0] == Status.BAD_OP
