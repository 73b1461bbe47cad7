"""Traffic between two HCAs, and inside one: messages, atomics, and retries that end."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import (
    QpState,
    QpType,
    SendFlags,
    SendWr,
    VerbsError,
    WcStatus,
    WrOpcode,
)
from tests.models.players import PATTERN, PSN, SIZE, Player, connected, driven, fill, untouched
from tests.models.server import functions
from tests.models.verbs.masked_atomics import masked_atomics
from tests.wire.conftest import StartServer

Pair = tuple[Player, Player]
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
LENGTHS = (0, 1, 64, 1023, 1024, 1025, SIZE)


@pytest.fixture(params=["two HCAs", "loopback"])
def pair(request: pytest.FixtureRequest, contexts: tuple[Context, Context]) -> Pair:
    """Two connected RC players, on two HCAs or on one."""
    a, b = contexts
    return connected(a, b if request.param == "two HCAs" else a)


@pytest.mark.parametrize("length", [0, 1, 12, 28, 44, 45, 60, 61, 108, 200, 512])
def test_inline(contexts: tuple[Context, Context], length: int) -> None:
    a, b = Player(contexts[0], inline=512), Player(contexts[1])
    a.connect(b)
    b.connect(a)
    b.receive()
    a.qp.post_send(
        [
            SendWr(1, WrOpcode.RDMA_WRITE, inline_data=PATTERN[:length],
                   remote_addr=b.address + 2048, rkey=b.mr.rkey),
            SendWr(2, WrOpcode.SEND, inline_data=PATTERN[:length]),
        ]
    )  # fmt: skip
    a.expect(OK, OK)
    (wc,) = b.expect(OK)
    assert wc.byte_len == length
    assert bytes(b.view[2048 : 2048 + length]) == PATTERN[:length] == bytes(b.view[:length])
    assert not any(b.view[2048 + length : 4096])


def test_atomics(pair: Pair) -> None:
    a, b = pair
    b.view[8:16] = (100).to_bytes(8, "little")

    def old() -> int:
        (wc,) = a.expect(OK)
        assert wc.byte_len == 8
        return int.from_bytes(a.view[:8], "little")

    def value() -> int:
        return int.from_bytes(b.view[8:16], "little")

    a.send(WrOpcode.ATOMIC_FETCH_AND_ADD, [a.sge(0, 8)], b, 8, compare_add=7)
    assert (old(), value()) == (100, 107)
    a.send(WrOpcode.ATOMIC_CMP_AND_SWP, [a.sge(0, 8)], b, 8, compare_add=1, swap=2)
    assert (old(), value()) == (107, 107)
    a.send(WrOpcode.ATOMIC_CMP_AND_SWP, [a.sge(0, 8)], b, 8, compare_add=107, swap=1 << 63)
    assert (old(), value()) == (107, 1 << 63)
    a.send(WrOpcode.ATOMIC_FETCH_AND_ADD, [a.sge(0, 8)], b, 8, compare_add=1 << 63)
    assert (old(), value()) == (1 << 63, 0)


def test_masked_atomics(pair: Pair) -> None:
    masked_atomics(*pair)


def test_uc(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts, QpType.UC)
    a.view[:] = PATTERN
    b.receive()
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 2000)], b)
    a.send(WrOpcode.SEND, [a.sge(0, 100)])
    a.send(WrOpcode.SEND, [a.sge(0, 100)])  # no receive: lost, and nobody is told
    a.expect(OK, OK, OK)
    (wc,) = b.expect(OK)
    assert wc.byte_len == 100
    assert bytes(b.view[:2000]) == PATTERN[:2000]
    b.silent(0)
    with pytest.raises(VerbsError, match="not possible on UC"):
        a.send(WrOpcode.RDMA_READ, [a.sge(0, 8)], b)


def test_signal_all(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts, signal_all=True)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 1)], b, flags=SendFlags(0))
    a.expect(OK)


def test_fence(pair: Pair) -> None:
    """A fenced SEND carries what the READ before it brought."""
    a, b = pair
    b.view[:8] = b"original"
    b.receive(0, 4096, 64)
    a.qp.post_send(
        [
            SendWr(1, WrOpcode.RDMA_READ, [a.sge(0, 8)], remote_addr=b.address, rkey=b.mr.rkey),
            SendWr(2, WrOpcode.SEND, [a.sge(0, 8)], SendFlags.SIGNALED | SendFlags.FENCE),
        ]
    )
    a.expect(OK, OK)
    b.expect(OK)
    assert bytes(b.view[4096:4104]) == b"original"


def test_more_reads_than_may_be_outstanding(pair: Pair) -> None:
    a, b = pair
    b.view[:] = PATTERN
    for _ in range(4):
        a.qp.post_send(
            [SendWr(n, WrOpcode.RDMA_READ, [a.sge(n * 100, 100)],
                    remote_addr=b.address + n * 100, rkey=b.mr.rkey)
             for n in range(16)]
        )  # fmt: skip
        a.expect(*[OK] * 16)
    assert bytes(a.view[:1600]) == PATTERN[:1600]


def test_shared_receive_queue_events(contexts: tuple[Context, Context]) -> None:
    a, b = Player(contexts[0]), Player(contexts[1], srq=True)
    a.connect(b)
    b.connect(a)
    assert b.srq is not None
    events = b.ctx.async_events
    while events.get_event(0):
        pass
    for n in range(3):
        b.receive(n)
    b.hca_srq.arm_limit(3)
    a.send(WrOpcode.SEND, [a.sge(0, 1)])
    event = events.get_event(2)
    assert event is not None
    assert (event.type, event.number) == (EventType.SRQ_LIMIT, b.hca_srq.srqn)
    b.qp.modify_err()
    event = events.get_event(2)
    assert event is not None
    assert (event.type, event.number) == (EventType.SRQ_QP_LAST_WQE, b.qp.qpn)


@pytest.mark.parametrize("why", ["reset", "nobody"])
def test_retries_end(contexts: tuple[Context, Context], why: str) -> None:
    """A peer that is in RESET, or gone: the retry counter runs out."""
    a, b = Player(contexts[0]), Player(contexts[1])
    fill(a, b)
    a.connect(b, timeout=8, retry_count=2)
    if why == "nobody":
        b.qp.destroy()
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 4)], b)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 4)], b)
    a.expect(WcStatus.RETRY_EXC_ERR, FLUSH)
    a.wait_state(QpState.ERR)
    untouched(a, b)


def test_wrong_psn(start_server: StartServer, tmp_path: Path) -> None:
    """A gap in the sequence numbers: NAK 0x60, sent again to no avail, retries exceeded."""
    log = tmp_path / "log"
    server = start_server("bluebridge.device", *functions(tmp_path), "--log", str(log))
    with driven(tmp_path) as (first, second):
        a, b = Player(first), Player(second)
        fill(a, b)
        b.connect(a)
        a.access = 0
        a.qp.modify_init()
        a.qp.modify_rtr(a.ctx.address_vector(b.ctx.address), b.qp.qpn, PSN)
        a.qp.modify_rts((PSN + 5) & 0xFFFFFF, timeout=8, retry_count=1)
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 4)], b)
        a.expect(WcStatus.RETRY_EXC_ERR)
        assert b.qp.query_state() is QpState.RTS
        untouched(a, b)
        responder = b.qp.qpn
    assert server.terminate() == 0, server.text()
    naks = [event for event in LogReader(log) if event.fact is Fact.NAK]
    assert {(event.device, event.obj) for event in naks} == {("b", responder)}
    assert {each.values["syndrome"] for each in naks} == {Syndrome.NAK_PSN}
    assert {(each.values["psn"], each.values["reason"]) for each in naks} == {
        (3, "expected PSN 0xfffffe")
    }
