"""Receivers that are not ready, peers that are gone, gaps in the numbers: retries end."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import QpState, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import WireBus
from tests.wire.conftest import StartServer
from tests.wire.players import PSN, Player, connected, fill, settle, untouched

OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


def test_rnr_forever(contexts: tuple[Context, Context]) -> None:
    """With RNR retry 7 a SEND waits until a receive is posted, long after."""
    a, b = connected(*contexts)
    a.send(WrOpcode.SEND, [a.sge(0, 4)])
    a.silent(0.03)
    b.receive()
    a.expect(OK)
    b.expect(OK)


@pytest.mark.parametrize("retries", [0, 2])
def test_rnr_retries_end(contexts: tuple[Context, Context], retries: int) -> None:
    a, b = Player(contexts[0]), Player(contexts[1])
    fill(a, b)
    a.connect(b, rnr_retry=retries)
    b.connect(a)
    a.send(WrOpcode.SEND, [a.sge(0, 4)])
    a.expect(WcStatus.RNR_RETRY_EXC_ERR)
    a.wait_state(QpState.ERR)
    assert b.qp.query_state() is QpState.RTS
    untouched(a, b)


def test_rnr_timer_zero_means_soon(contexts: tuple[Context, Context]) -> None:
    """Code 0 is 655 ms; the connection manager uses it, so receives posted late are seen soon."""
    a, b = Player(contexts[0]), Player(contexts[1])
    a.connect(b)
    b.connect(a, min_rnr_timer=0)
    a.send(WrOpcode.SEND, [a.sge(0, 4)])
    settle(a)
    b.receive()
    a.wait(1, timeout=0.5)


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
    sockets = [f"name={name},socket={tmp_path / name}" for name in "ab"]
    server = start_server(
        "bluebridge.device", "--hca", sockets[0], "--hca", sockets[1], "--log", str(log)
    )
    buses = [WireBus(tmp_path / name) for name in "ab"]
    with open_hca(buses[0]) as first, open_hca(buses[1]) as second:
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
    for bus in buses:
        bus.close()
    assert server.terminate() == 0, server.text()
    naks = [event for event in LogReader(log) if f"NAK {Syndrome.NAK_PSN:#x}" in event.text]
    assert {(event.device, event.obj) for event in naks} == {("b", responder)}
    assert all("PSN 0x3, expected 0xfffffe" in event.text for event in naks)
