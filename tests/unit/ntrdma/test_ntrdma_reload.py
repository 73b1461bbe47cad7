"""One side of NTRDMA is opened and closed again and again in one process; nothing piles up."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator

import pytest

from bluebridge.guest.ntrdma.engine.transport import Event
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport
from bluebridge.guest.verbs import QpState, WcStatus
from tests.models.verbs.contract.common import with_a_send_that_waits
from tests.models.verbs.player import Player

CYCLES = 15
WARM_UP = 5
SECONDS = 20.0


@pytest.fixture
def server() -> Iterator[tuple[NtrdmaDevice, int]]:
    """The side that stays, and where it listens."""
    transport = TcpTransport("s:127.0.0.1:0")
    with NtrdmaDevice(transport) as device:
        yield device, transport.port


def visit(device: NtrdmaDevice, port: int) -> None:
    """A peer comes, is written to, and leaves while a request waits for it."""
    with NtrdmaDevice(TcpTransport(f"c:127.0.0.1:{port}")) as peer:
        for each in (device, peer):
            each.wait_ready(SECONDS)
        x = with_a_send_that_waits(device, peer)
    x.expect(WcStatus.WR_FLUSH_ERR)
    assert x.qp.query_state() is QpState.ERR
    destroy(x)


def destroy(player: Player) -> None:
    """Give everything of it back."""
    player.qp.destroy()
    player.cq.destroy()
    player.channel.close()
    player.mr.close()
    player.memory.free()
    player.pd.close()


def holdings(device: NtrdmaDevice) -> tuple[int, int, int, int, int]:
    """Files, threads, free memory of the side that stays, its queue pairs, its domains."""
    gc.collect()
    own = device.service.engine.own
    transport = device.service.back_end
    assert isinstance(transport, TcpTransport)
    free = transport.arena.available
    files = len(os.listdir("/proc/self/fd"))
    pairs, domains = len(own.resources.pairs), len(own.resources.domains)
    return files, threading.active_count(), free, pairs, domains


def parted(device: NtrdmaDevice) -> None:
    """The twins of a peer that has left are gone with the next reset."""
    deadline = time.monotonic() + SECONDS
    while device.service.engine.ready:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_nothing_piles_up(server: tuple[NtrdmaDevice, int]) -> None:
    device, port = server
    before: tuple[int, ...] = ()
    for cycle in range(CYCLES):
        visit(device, port)
        parted(device)
        if cycle == WARM_UP:
            before = holdings(device)
    assert holdings(device) == before
    events = [event for event, _ in device.async_events]
    assert events == [Event.PORT_UP, Event.PAIR_FAILED, Event.PORT_DOWN] * CYCLES
