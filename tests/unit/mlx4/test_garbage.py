"""Send queues full of garbage: each entry is carried out or ends with an error, in order.

Commands, doorbells and all else that a guest may write are the fuzzer's (`tests/fuzz`).
"""

from __future__ import annotations

import logging
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QpState, ServiceType
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
from tests.models.rdma_node import LOG_SQ, SQ_SHIFT, Pair, TestQp
from tests.unit.rdma.test_qp_datagram import GSI, ready

CASES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NUMBERS = st.sampled_from(
    (0, 1, 2, 3, 8, 0x10, 0x11, 0x18, 0x40, 0x81, 0x82, 0x240, 512, 514, 0x800240, 0x101, 0x201,
     0x501, 0xD01, 0xFFFF, 0xFFFFFF, 1 << 31, 1 << 31 | 4, 0xFFFFFFFF)
) | st.integers(0, 0xFFFFFFFF)  # fmt: skip


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


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the device logged as its own failure."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


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
