"""A server whose guests do nothing does nothing: it is not woken at all."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.client import Client
from tests.models.players import connected, driven, fill
from tests.models.server import ServerProcess, devices, serving

IDLE_SECONDS = 0.5
QUIET_SECONDS = 0.3
"""Longer than what was noted last waits to be written (`device.server.process.FLUSH_SECONDS`)."""


def wakes_until_quiet(server: ServerProcess, timeout: float = 10.0) -> int:
    """How often the server has woken when it has come to rest."""
    deadline = time.monotonic() + timeout
    before, wakes = -1, server.wakes()
    while wakes != before:
        assert time.monotonic() < deadline, f"{wakes - before} wakes in the last moment"
        time.sleep(QUIET_SECONDS)
        before, wakes = wakes, server.wakes()
    return wakes


def assert_idle(server: ServerProcess) -> None:
    """It sleeps through, and uses no processor time."""
    wakes, used = wakes_until_quiet(server), server.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    assert server.wakes() == wakes
    assert server.cpu_seconds() == used


@pytest.mark.brief("True")
@pytest.mark.parametrize("busy", [False, True])
def test_a_caller_that_stops_in_its_introduction_wakes_nobody(tmp_path: Path, busy: bool) -> None:
    """Nor does what it said when it has left; its descriptor is closed then."""
    path = tmp_path / "a"
    words = ["--hca", f"name=a,socket={path}", "--no-log"]
    with ExitStack() as stack:
        server = stack.enter_context(serving("bluebridge.device", words, tmp_path / "server.log"))
        if busy:
            stack.enter_context(Client(path))
        wakes_until_quiet(server)
        files = server.open_files()
        caller = stack.enter_context(Client(path, negotiate=False))
        message = caller.pack(VfioUserCommand.VERSION, struct.pack("<HH", 0, 1) + b"{}\0")
        for part in (message[:3], message[3:16], message[16:-1]):
            caller.send(part)
            assert_idle(server)
        caller.close()
        assert server.has_open(files)
        assert_idle(server)
        if not busy:
            with Client(path) as client:
                assert client.alive()


def test_an_idle_lab_never_wakes_its_server(tmp_path: Path) -> None:
    """Before the first guest, with two connected ones, and when they have gone."""
    with devices(tmp_path, kinds=("hca", "ntb", "dma")) as server:
        assert_idle(server)
        with driven(tmp_path) as (first, second), ExitStack() as stack:
            for kind in ("ntb", "dma"):
                for name in "ab":
                    stack.enter_context(Client(tmp_path / f"{kind}-{name}"))
            a, b = connected(first, second)
            fill(a, b)
            a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
            a.expect(WcStatus.SUCCESS)
            assert_idle(server)
        assert_idle(server)
