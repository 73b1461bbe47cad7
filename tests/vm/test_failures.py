"""Things that go wrong end in one clear line, a status, and an empty machine."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.krping.krping_command import KrpingRequest, run
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.models.lab_commands import alive
from tests.models.lab_tool import Tool

SERVER = "server,addr=192.168.69.127,port=9999"
CLIENT = "client,addr=192.168.69.127,port=9999"


def _last(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.brief
@pytest.mark.may_crash
def test_a_guest_panics_under_a_run(lab: Lab) -> None:
    with pytest.raises(LabError, match="guest a: the guest's kernel panicked"), lab.pair() as pair:
        pids = [pair.server.pid, *(machine.pid for machine in pair.machines)]
        folder = pair.folder
        pair.a.console.run("((sleep 4; echo c > /proc/sysrq-trigger) </dev/null >/dev/null 2>&1 &)")
        run(pair, KrpingRequest.parse(SERVER, CLIENT))
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()
    assert "sysrq: Trigger a crash" in (pair.logs / "console-a.log").read_text(errors="replace")


def test_the_server_dies_mid_run(tool: Callable[..., Tool]) -> None:
    bluebridge = tool("krping", SERVER, CLIENT)
    bluebridge.wait_until(lambda: "krping: server" in bluebridge.errors, "two guests")
    os.kill(bluebridge.child("-m bluebridge.device"), signal.SIGKILL)
    status, output = bluebridge.finish(60)
    assert status == 1
    assert "the device server ended with status -9" in _last(bluebridge.errors)
    assert "Traceback" not in bluebridge.errors + output
    bluebridge.assert_nothing_left()


@pytest.mark.brief("2")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_the_tool_is_stopped(tool: Callable[..., Tool], number: signal.Signals) -> None:
    """While the guests start: nothing stays, not even after SIGKILL."""
    bluebridge = tool("krping", SERVER, CLIENT)
    bluebridge.wait_until(
        lambda: all(
            any(f"-name bluebridge-{name} " in command for command in bluebridge.children.values())
            for name in "ab"
        ),
        "QEMU",
    )
    bluebridge.signal(number)
    status, _ = bluebridge.finish(60)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    bluebridge.assert_nothing_left()


def test_a_taken_socket(tool: Callable[..., Tool], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "hca-a.sock"))
        other.listen()
        bluebridge = tool("krping", SERVER, CLIENT, "--sockets", str(tmp_path))
        status, _ = bluebridge.finish(60)
        assert status == 1
        assert str(tmp_path / "hca-a.sock") in _last(bluebridge.errors)
        assert (tmp_path / "hca-a.sock").exists()
    bluebridge.assert_nothing_left()


def test_no_space_for_the_log(tool: Callable[..., Tool]) -> None:
    bluebridge = tool("krping", SERVER, CLIENT, "--log", "/proc/bluebridge")
    status, _ = bluebridge.finish(60)
    assert status == 1
    assert "cannot write the log folder /proc/bluebridge" in _last(bluebridge.errors)
    bluebridge.assert_nothing_left()
