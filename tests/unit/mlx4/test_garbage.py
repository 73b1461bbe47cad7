"""Guests that write garbage: commands end with a status, entries with an error, nobody falls over.

What must never happen is an exception inside of the device (INTERNAL_ERR, a traceback in the log),
a byte in memory of another guest, or a device that does not work any more after a reset.
"""

from __future__ import annotations

import logging
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.mad import MAD
from bluebridge.device.layout.mlx4.bar0 import RESET_OFFSET, RESET_VALUE
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, SET_PORT_GENERAL, SET_PORT_RQP_CALC
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import (
    CQC,
    EQC,
    MAP_ENTRY,
    MPT,
    QPC,
    SRQC,
    QpState,
    ServiceType,
)
from bluebridge.device.layout.mlx4.ports import CONFIG_DEV, MCG, SET_PORT_IB
from bluebridge.device.layout.mlx4.wqe import (
    ATOMIC,
    BIND,
    DATA,
    DATAGRAM,
    FAST_REG,
    LOCAL_INVAL,
    MASKED_ATOMIC,
    RADDR,
)
from bluebridge.device.mlx4.settings.config import Features
from tests.models.rdma_node import LOG_SQ, SQ_SHIFT, Node, Pair, TestQp
from tests.unit.rdma.test_qp_datagram import GSI, ready

CASES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MAILBOXES: dict[int, tuple[Struct, int]] = {
    Opcode.INIT_HCA: (INIT_HCA, 0),
    Opcode.SW2HW_MPT: (MPT, 0),
    Opcode.SW2HW_EQ: (EQC, 0),
    Opcode.SW2HW_CQ: (CQC, 0),
    Opcode.MODIFY_CQ: (CQC, 0),
    Opcode.SW2HW_SRQ: (SRQC, 0),
    Opcode.RST2INIT_QP: (QPC, 8),
    Opcode.INIT2INIT_QP: (QPC, 8),
    Opcode.INIT2RTR_QP: (QPC, 8),
    Opcode.RTR2RTS_QP: (QPC, 8),
    Opcode.RTS2RTS_QP: (QPC, 8),
    Opcode.SQERR2RTS_QP: (QPC, 8),
    Opcode.RTS2SQD_QP: (QPC, 8),
    Opcode.SQD2RTS_QP: (QPC, 8),
    Opcode.SET_PORT: (SET_PORT_GENERAL, 0),
    Opcode.WRITE_MCG: (MCG, 0),
    Opcode.MAP_ICM: (MAP_ENTRY, 0),
    Opcode.CONFIG_DEV: (CONFIG_DEV, 0),
    Opcode.MAD_IFC: (MAD, 0),
}
MORE_MAILBOXES = {Opcode.SET_PORT: ((SET_PORT_RQP_CALC, 0), (SET_PORT_IB, 0))}
QPN = 0x240
NUMBERS = st.sampled_from(
    (0, 1, 2, 3, 8, 0x10, 0x11, 0x18, 0x40, 0x81, 0x82, QPN, 512, 514, 0x800240, 0x101, 0x201,
     0x501, 0xD01, 0xFFFF, 0xFFFFFF, 1 << 31, 1 << 31 | 4, 0xFFFFFFFF)
) | st.integers(0, 0xFFFFFFFF)  # fmt: skip
ADDRESSES = st.sampled_from((0, 8, 0x100000, 0x100008, (1 << 64) - 4096, 0xDEAD_0000_0000))


@st.composite
def mailboxes(draw: st.DrawFn, opcode: int) -> bytes:
    """Random bytes, or a mailbox of the command's own kind with some fields set."""
    if opcode not in MAILBOXES or draw(st.booleans()):
        seed = draw(st.binary(min_size=0, max_size=64))
        return seed * 64 if draw(st.booleans()) else seed
    table, offset = draw(
        st.sampled_from((MAILBOXES[opcode], *MORE_MAILBOXES.get(Opcode(opcode), ())))
    )
    return bytes(offset) + bytes(draw(filled(table)))


@st.composite
def filled(draw: st.DrawFn, table: Struct) -> bytearray:
    """A structure with a few of its fields set to anything they can hold."""
    data = table.pack()
    for item in draw(st.lists(st.sampled_from(table.fields), max_size=12)):
        if item.raw:
            table.set(data, item.name, draw(st.binary(min_size=item.width, max_size=item.width)))
        else:
            small = st.integers(0, min(item.mask, 20))
            table.set(data, item.name, draw(small | st.integers(0, item.mask)))
    return data


@st.composite
def commands(draw: st.DrawFn) -> tuple[int, bytes | int, int, int]:
    """Opcode, mailbox or immediate, modifier, op modifier."""
    known = st.sampled_from([int(opcode) for opcode in Opcode])
    useful = st.sampled_from(sorted(MAILBOXES))
    opcode = draw(useful | useful | useful | known | st.integers(0, 0xFFF))
    data: bytes | int = draw(mailboxes(opcode) | ADDRESSES)
    return opcode, data, draw(NUMBERS), draw(st.sampled_from((0, 0, 0, 1, 2, 3, 15)))


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the device logged as its own failure."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@CASES
@given(st.lists(commands(), min_size=1, max_size=12))
def test_commands(
    caplog: pytest.LogCaptureFixture, script: list[tuple[int, bytes | int, int, int]]
) -> None:
    caplog.clear()
    pair = Pair().connect()
    node, other = pair.a, pair.b
    before = other.host.peek(0x100000, 8 << 20)
    for opcode, data, modifier, op_modifier in script:
        status, _ = node.try_command(opcode, data, modifier, op_modifier, out=True)
        assert status is not Status.INTERNAL_ERR, (script, node.host.told[-1])
    assert other.host.peek(0x100000, 8 << 20) == before
    pair.run(0.01)
    assert complaints(caplog) == []
    node.write32(RESET_OFFSET, RESET_VALUE)
    node.toggle = 1
    node.start()


SEGMENTS = (ATOMIC, BIND, DATA, DATAGRAM, FAST_REG, LOCAL_INVAL, MASKED_ATOMIC, RADDR)
SERVICES = ("RC", "UC", "UD", "GSI", "XRC", "ETH")


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """The body of an entry behind its first dword: a header, then segments of any kind."""
    ds = draw(st.integers(0, 8) | st.integers(0, 63))
    words = draw(st.integers(0, 0x3FFFFFF)) << 6 | ds
    flags = draw(st.sampled_from((0xC, 0xC, 0, 0x2E)) | st.integers(0, 0xFFFFFFFF))
    body = pack(">III", words, flags, draw(NUMBERS))
    for _ in range(draw(st.integers(0, 3))):
        segment = st.sampled_from(SEGMENTS).flatmap(filled).map(bytes)
        body += draw(segment | st.binary(max_size=32))
    return body[: (1 << SQ_SHIFT) - 4]


def sender(service: str) -> tuple[Pair, TestQp]:
    """Two guests; A has a queue pair of the service in RTS."""
    if service in ("RC", "UC"):
        pair = Pair(ServiceType[service]).connect()
        return pair, pair.qa
    pair = Pair()
    if service == "XRC":
        qp = pair.a.create_qp(0x300, ServiceType.XRC, doorbell_record=0)
        pair.a.to_rtr(qp, pair.b, 0x800301)
        pair.a.to_rts(qp)
        return pair, qp
    number, kind, limit = {
        "UD": (0x300, ServiceType.UD, 0xAB),
        "GSI": (GSI, ServiceType.MLX, 0xAB),
        "ETH": (0x300, ServiceType.MLX, 0xFF),
    }[service]
    qp = pair.a.create_qp(number, kind, rq_shift=6, mtu_msgmax=limit)
    ready(pair.a, qp)
    return pair, qp


@pytest.mark.parametrize("service", SERVICES)
@CASES
@given(st.lists(st.tuples(st.integers(0, 31), entries()), min_size=1, max_size=6))
def test_send_entries(
    caplog: pytest.LogCaptureFixture, service: str, bodies: list[tuple[int, bytes]]
) -> None:
    """Each entry is carried out or completed in error, in order; later ones are flushed."""
    caplog.clear()
    pair, qp = sender(service)
    before = pair.b.host.peek(0x100000, 8 << 20)
    for opcode, body in bodies:
        slot, lap = qp.sent & (1 << LOG_SQ) - 1, qp.sent >> LOG_SQ & 1
        raw = pack(">I", lap << 31 | opcode) + body
        pair.a.host.poke(qp.address + (slot << SQ_SHIFT), raw)
        qp.sent += 1
    pair.a.doorbell(qp.qpn)
    pair.run(0.01)
    done = pair.a.completions(qp)
    indices = [wc.index for wc in done]
    assert indices == sorted(indices)
    failed = [wc.status for wc in done if wc.status]
    assert all(status == 5 for status in failed[1:])
    state = QPC.get(pair.a.query(Opcode.QUERY_QP, qp.qpn)[8:], "state")
    assert not failed or state in (QpState.ERR, QpState.SQER)
    assert complaints(caplog) == []
    changed = pair.b.host.peek(0x100000, 8 << 20) != before
    assert not changed or service in ("GSI", "ETH", "UD")  # no key of B's is known to A


@CASES
@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 4, 8, 0x10, 0x14, 0x18, 0x20, 0x24, 0x28, 0x800, 0x804, 0x808, 256))
            | st.integers(0, 4095),
            st.sampled_from((0, 128, 129, 2048 + 128, 2048, 4095)) | st.integers(0, 4095),
            st.integers(0, 0xFFFFFFFFFFFFFFFF),
            st.sampled_from((1, 2, 4, 8)),
        ),
        min_size=1,
        max_size=24,
    )
)
def test_doorbells_and_blueflame(
    caplog: pytest.LogCaptureFixture, stores: list[tuple[int, int, int, int]]
) -> None:
    caplog.clear()
    pair = Pair().connect()
    for place, page, value, width in stores:
        raw = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
        pair.a.hca.bar_write(2, page * 4096 + place, raw)
        pair.a.hca.bar_write(0, page * 256 + place, raw)
    pair.run(0.01)
    assert complaints(caplog) == []


@CASES
@given(st.binary(min_size=0, max_size=256), st.booleans())
def test_packets_that_software_builds(
    caplog: pytest.LogCaptureFixture, packet: bytes, pro: bool
) -> None:
    """QP1 sends what its software put together: nonsense stays on this side."""
    caplog.clear()
    fabric = LocalFabric()
    node = Node("a", 1, fabric, features=Features(pro=pro))
    qp = node.create_qp(GSI, ServiceType.MLX, rq_shift=6, mtu_msgmax=0xAB)
    ready(node, qp)
    address, lkey = node.memory(4096)
    node.host.poke(address, packet)
    node.post_send(qp, 0x0A, pack(">IIQ", len(packet), lkey, address))
    assert [wc.status for wc in node.completions(qp)] in ([0], [2])
    assert complaints(caplog) == []
