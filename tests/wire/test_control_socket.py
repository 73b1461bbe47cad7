"""The control socket of a server that works, and `bluebridge watch`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.device.__main__ import main
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.eqe import PORT_DOWN, EventType
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from bluebridge.host_tools import cli
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import Player, driven
from tests.models.server import ROOT, devices, functions
from tests.wire.conftest import StartServer


def _arguments(folder: Path) -> list[str]:
    return [*functions(folder, names="a"), "--control", str(folder / "control")]


def test_a_driver_sees_its_cable_pulled_and_its_adapter_fail(
    start_server: StartServer, tmp_path: Path
) -> None:
    start_server("bluebridge.device", *_arguments(tmp_path))
    control = tmp_path / "control"
    bus = SocketBus(tmp_path / "a")
    ctx = open_hca(bus)  # never closed: its device fails
    assert hardware.tell(control, "status") == ["a/1 working cable in link up"]
    hardware.tell(control, "link a down")
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1] != (EventType.PORT_CHANGE, PORT_DOWN):
        event = ctx.async_events.get_event(5)
        assert event is not None, seen
        seen.append((event.type, event.subtype))
    assert not ctx.query_port().active
    hardware.tell(control, "link a up")
    hardware.tell(control, "fault a injected by a test")
    assert bus.read32(0, bar0.CATAS_OFFSET) == bar0.CATAS_CODE_INJECTED
    bus.write32(0, bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert not bus.read32(0, bar0.CATAS_OFFSET)
    with open_hca(bus) as again:
        assert again.query_port().active
    bus.close()


def test_bad_lines(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("bluebridge.device", *_arguments(tmp_path))
    control = tmp_path / "control"
    for line in ("link x up", "frob", ""):
        with pytest.raises(UsageError):
            hardware.tell(control, line)
    assert hardware.tell(control, "status") == ["a/1 working cable in link down"]
    server.terminate()
    assert not control.exists()
    with pytest.raises(LabError, match="does not answer"):
        hardware.tell(control, "status")


def test_a_place_that_is_none_is_one_line(tmp_path: Path) -> None:
    words = ["--hca", f"name=a,socket={tmp_path / 'a'}", "--control", str(tmp_path / "no" / "x")]
    assert main(words) == 2
    assert not (tmp_path / "a").exists()


def test_traffic_shows_up_while_it_runs(tmp_path: Path) -> None:
    """Started before the traffic, it leaves out what was before it."""
    with devices(tmp_path), driven(tmp_path) as (first, second):
        a, b = Player(first, inline=64), Player(second)
        a.connect(b)
        b.connect(a)
        words = [
            sys.executable, "-u", "-m", "bluebridge.host_tools.cli", "watch",
            str(tmp_path / "log"), "--interval", "0.2",
        ]  # fmt: skip
        with subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={"COLUMNS": "200"}
        ) as watch:
            assert watch.stdout is not None
            try:
                first_look = watch.stdout.readline()
                assert "work requests/s" in first_look
                seen = ""
                while "RDMA_WRITE" not in seen:
                    request = SendWr(1, WrOpcode.RDMA_WRITE, inline_data=bytes(8))
                    request.remote_addr, request.rkey = b.address, b.mr.rkey
                    for _ in range(100):
                        a.qp.post_send(request)
                        a.expect(WcStatus.SUCCESS)
                    while not (line := watch.stdout.readline()).startswith(str(tmp_path)):
                        seen += line
                assert "writes to the adapter" in seen
                assert "doorbell" in seen
            finally:
                watch.terminate()


def test_a_folder_without_a_log_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["watch", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "holds no bus log" in captured.err


def test_the_server_counts(tmp_path: Path) -> None:
    """Messages, a message that was sent again since a rule took it, and the loop's longest call."""
    control = tmp_path / "control"
    with devices(tmp_path):
        before = _counts(control)
        with driven(tmp_path) as (first, second):
            a, b = Player(first, inline=64), Player(second)
            a.connect(b)
            b.connect(a)
            hardware.tell(control, "drop a direction=out count=1")
            request = SendWr(1, WrOpcode.RDMA_WRITE, inline_data=bytes(8))
            request.remote_addr, request.rkey = b.address, b.mr.rkey
            a.qp.post_send(request)
            a.expect(WcStatus.SUCCESS)
            after = _counts(control)
            hardware.tell(control, "remove all")
            assert _counts(control)["faults_taken link_rules"] == 1
    grown = {name: value - before[name] for name, value in after.items() if value > before[name]}
    assert grown.pop("messages delivered") >= 2
    assert grown.pop("loop_longest_call_seconds") > 0
    assert grown == {"messages lost": 1, "retries a 1 no_answer": 1, "faults_taken link_rules": 1}


def _counts(control: Path) -> dict[str, float]:
    rows = [json.loads(line) for line in hardware.tell(control, "stats")]
    return {
        " ".join([row["name"], *sample["labels"].values()]): sample["value"]
        for row in rows
        for sample in row["samples"]
    }
