"""Tests of what a port tells: its cable (ethtool -m), its link modes, its interface counters."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import Frames, Message
from bluebridge.device.layout.ib.mad import MAD, MAD_SIZE, SMP_DATA_OFFSET, Method, MgmtClass
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, QUERY_PORT, DevFlag
from bluebridge.device.layout.mlx4.commands import MODIFIER_RESET_COUNTER, Opcode, Status
from bluebridge.device.layout.mlx4.ports import (
    ACCESS_REG,
    CABLE_I2C_ADDRESS,
    CABLE_INFO,
    CABLE_INFO_ATTRIBUTE,
    CONFIG_DEV,
    IF_COUNTER,
    MAX_CABLE_READ,
    PTYS,
    PTYS_ETHERNET,
    PTYS_ID,
    CableStatus,
    LinkMode,
)
from bluebridge.device.layout.net.ethernet import HEADER_SIZE, MIN_FRAME
from bluebridge.device.layout.net.roce import AETH, BTH_SIZE, GRH_SIZE, ICRC_SIZE, RETH
from bluebridge.device.layout.qsfp import QSFP_BASE_SUM, QSFP_EEPROM, QSFP_EXTENDED_SUM, QSFP_PLUS
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from tests.models.hca_driver import Driver
from tests.models.packet_pair import PacketPair
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote


def ask(
    driver: Driver, address: int, size: int, page: int = 0, i2c: int = CABLE_I2C_ADDRESS
) -> tuple[int, bytes]:
    """Status and bytes, asked for as in Linux `mlx4/port.c: mlx4_get_module_info`."""
    header = MAD.pack(
        base_version=1, class_version=1, mgmt_class=MgmtClass.SUBN_LID, method=Method.GET,
        attr_id=CABLE_INFO_ATTRIBUTE,
    )  # fmt: skip
    question = CABLE_INFO.pack(i2c_address=i2c, page=page, address=address, size=size)
    request = bytes(header).ljust(SMP_DATA_OFFSET, b"\0") + question
    answer = driver.query(Opcode.MAD_IFC, 1, 3, request.ljust(MAD_SIZE, b"\0"))[:MAD_SIZE]
    return MAD.get(answer, "status"), CABLE_INFO.get_raw(answer[SMP_DATA_OFFSET:], "data")[:size]


def test_the_memory_describes_a_copper_cable(driver: Driver) -> None:
    memory = b""
    while len(memory) < QSFP_EEPROM.size:
        size = min(MAX_CABLE_READ, QSFP_EEPROM.size - len(memory))
        status, data = ask(driver, len(memory), size)
        assert status == 0
        memory += data
    assert QSFP_EEPROM.get(memory, "identifier") == QSFP_PLUS
    assert QSFP_EEPROM.get(memory, "upper_identifier") == QSFP_PLUS
    assert QSFP_EEPROM.get_raw(memory, "vendor") == b"bluebridge      "
    for name, covered in (("base_sum", QSFP_BASE_SUM), ("extended_sum", QSFP_EXTENDED_SUM)):
        total = sum(memory[covered.start : covered.stop])
        assert QSFP_EEPROM.get(memory, name) == total & 0xFF
    assert ask(driver, 128, 48, page=3) == ask(driver, 128, 48)  # the memory is flat


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ({"address": 0, "size": 0}, CableStatus.BAD_ADDRESS),
        ({"address": 0, "size": 49}, CableStatus.BAD_ADDRESS),
        ({"address": 255, "size": 2}, CableStatus.BAD_ADDRESS),
        ({"address": 0, "size": 1, "page": 16}, CableStatus.BAD_PAGE),
        ({"address": 0, "size": 1, "i2c": 0x51}, CableStatus.BAD_I2C_ADDRESS),
    ],
)
def test_nonsense_has_a_status_of_its_own(
    driver: Driver, question: dict[str, int], status: CableStatus
) -> None:
    assert ask(driver, **question)[0] == status


def test_a_cable_that_is_out_cannot_be_read(driver: Driver) -> None:
    driver.port.plug(False)
    assert ask(driver, 0, 1)[0] == CableStatus.NOT_CONNECTED
    driver.port.plug(True)
    assert ask(driver, 0, 1) == (0, bytes([QSFP_PLUS]))


QUERY, WRITE = 1, 2
BOTH = LinkMode.CR4_40G | LinkMode.CR_10G


@pytest.fixture
def opened() -> Driver:
    """A device whose port is open."""
    opened = Driver().start()
    opened.command(Opcode.INIT_PORT, 0, 1)
    return opened


def request(method: int, register: int = PTYS_ID, **fields: int) -> bytes:
    """Return what `mlx4_ACCESS_PTYS_REG` sends."""
    values = {"port": 1, "protocol": PTYS_ETHERNET, **fields}
    head = ACCESS_REG.pack(constant=0x804, register=register, method=method, length=14)
    return bytes(head) + bytes(PTYS.pack(values))


def access(opened: Driver, method: int, **fields: int) -> dict[str, int | bytes]:
    """The register as it is afterwards."""
    answer = opened.query(Opcode.ACCESS_REG, data=request(method, **fields))
    assert ACCESS_REG.get(answer, "status") == 0
    return PTYS.unpack(answer, ACCESS_REG.size)


def speed(opened: Driver) -> int:
    """Return what QUERY_PORT says."""
    return QUERY_PORT.get(opened.query(Opcode.QUERY_PORT, 1), "link_speed")


def test_a_link_mode_is_chosen(opened: Driver) -> None:
    modes = access(opened, QUERY)
    assert (modes["eth_capability"], modes["eth_admin"]) == (BOTH, BOTH)
    assert (modes["eth_operational"], speed(opened)) == (LinkMode.CR4_40G, 0x40)
    modes = access(opened, WRITE, eth_admin=LinkMode.CR_10G)
    assert (modes["eth_operational"], speed(opened)) == (LinkMode.CR_10G, 0x01)
    opened.port.plug(False)
    assert access(opened, QUERY)["eth_operational"] == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(QUERY, register=0x5005), Status.BAD_PARAM),
        (request(QUERY, port=2), Status.BAD_INDEX),
        (request(QUERY, protocol=1), Status.BAD_PARAM),
        (request(3), Status.BAD_PARAM),
        (request(WRITE), Status.BAD_PARAM),
        (request(WRITE, eth_admin=1), Status.BAD_PARAM),
    ],
)
def test_refusals(opened: Driver, data: bytes, status: Status) -> None:
    assert opened.try_command(Opcode.ACCESS_REG, data, out=True)[0] == status
    assert access(opened, QUERY)["eth_admin"] == BOTH


def test_checksum_mode(opened: Driver) -> None:
    answer = opened.query(Opcode.CONFIG_DEV, op_modifier=1)
    assert CONFIG_DEV.get(answer, "rx_checksum") == 0x22


MINE = 3
AROUND = HEADER_SIZE + GRH_SIZE + BTH_SIZE + ICRC_SIZE
"""Bytes of a packet of RoCE v1 around payload and extended headers."""


def counts(node: Node, index: int = MINE, flags: int = 0) -> tuple[int, ...]:
    """Packets received, bytes, packets sent, bytes."""
    raw = node.query(Opcode.QUERY_IF_STAT, index | flags)
    names = ("rx_frames", "rx_bytes", "tx_frames", "tx_bytes")
    return tuple(IF_COUNTER.get(raw, name) for name in names)


def connected() -> Pair:
    """A pair whose queue pairs count in counter 3 of their adapter; the path MTU is 1024."""
    pair = Pair()
    pair.a.to_rtr(pair.qa, pair.b, pair.qb.qpn, pri_counter_index=MINE)
    pair.b.to_rtr(pair.qb, pair.a, pair.qa.qpn, pri_counter_index=MINE)
    pair.a.to_rts(pair.qa)
    pair.b.to_rts(pair.qb)
    return pair


def test_the_driver_is_told_of_the_counters() -> None:
    caps = Pair().a.query(Opcode.QUERY_DEV_CAP)
    assert QUERY_DEV_CAP.get(caps, "flags_hi") << 32 & DevFlag.COUNTERS
    assert QUERY_DEV_CAP.get(caps, "max_counters") == INTERFACE_COUNTERS


def test_messages_count_as_the_packets_they_take() -> None:
    pair = connected()
    target, rkey = pair.b.memory(8192)
    source, lkey = pair.a.memory(8192)
    body = remote(target, rkey) + data((lkey, source, 3000))
    pair.post_send(SendOpcode.RDMA_WRITE, body)
    written, ack = 3000 + 3 * AROUND + RETH.size, AROUND + AETH.size
    assert counts(pair.a) == (1, ack, 3, written)
    assert counts(pair.b) == (3, written, 1, ack)
    pair.post_send(SendOpcode.RDMA_READ, body)
    asked, read = AROUND + RETH.size, 3000 + 3 * AROUND + 2 * AETH.size
    assert counts(pair.a) == (4, ack + read, 4, written + asked)
    assert counts(pair.b) == (4, written + asked, 4, ack + read)
    assert counts(pair.a, 0) == (0, 0, 0, 0)


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, SendOpcode.SEND])
def test_packets_count_as_the_frames_that_they_are(opcode: SendOpcode) -> None:
    """Of RoCE v2 over IPv4, that of nothing padded to the shortest frame there is."""
    pair = PacketPair()
    sent: dict[FabricPort, list[int]] = {}

    def watch(source: FabricPort, message: Message) -> bool:
        assert isinstance(message, Frames)
        frames = [len(frame) for train in message.trains for frame in train.frames]
        sent.setdefault(source, []).extend(frames)
        return True

    pair.watched.watch = watch
    if opcode is SendOpcode.SEND:
        pair.b.post_recv(pair.qb, [])
        pair.a.post_send(pair.qa, opcode, b"")
        pair.run(0.01)
        assert MIN_FRAME in sent[pair.wires[0]]
    else:
        pair.write(opcode, 9001)
    by_a, by_b = (sent[wire] for wire in pair.wires)
    assert counts(pair.a, 0) == (len(by_b), sum(by_b), len(by_a), sum(by_a))
    assert counts(pair.b, 0) == (len(by_a), sum(by_a), len(by_b), sum(by_b))


def test_reading_may_zero_and_other_indices_are_refused() -> None:
    pair = connected()
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"x"))
    sent = 4 + AROUND + RETH.size
    assert counts(pair.a, flags=MODIFIER_RESET_COUNTER) == (1, AROUND + AETH.size, 1, sent)
    assert counts(pair.a) == (0, 0, 0, 0)
    status, _ = pair.a.try_command(Opcode.QUERY_IF_STAT, modifier=INTERFACE_COUNTERS, out=True)
    assert status == Status.BAD_INDEX
