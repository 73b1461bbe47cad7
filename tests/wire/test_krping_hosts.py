"""`bluebridge krping --host a,b`: between two processes of this machine, without a guest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.host_tools import cli
from tests.models.lab_tool import Tool, tools

ADDRESS = "addr=192.168.69.127,port=9999"
HOSTS = ("krping", "--host", "a,b", f"server,{ADDRESS}")
START = Callable[[str], Tool]
NINE = ["name"] + [
    f"{operation}_{unit}"
    for operation in ("send", "recv", "write", "read")
    for unit in ("bytes", "msgs")
]


@pytest.fixture
def krping(tmp_path: Path) -> Iterator[START]:
    """Starts `bluebridge krping` with a client's options; its log is in the test's folder."""
    with tools(tmp_path) as start:
        yield lambda options: start(
            *HOSTS, f"client,{ADDRESS}{options}", "--json", "--log", str(tmp_path)
        )


def connected(tool: Tool, folder: Path) -> None:
    """Wait until both sides of an endless run are at work."""
    recorded, transcript = folder / "bus" / "events-000000.bin", folder / "host-b.log"
    tool.wait_until(
        lambda: transcript.exists() and "rdma_connect successful" in transcript.read_text(),
        "a connection",
    )
    before = recorded.stat().st_size
    tool.wait_until(lambda: recorded.stat().st_size > before + 50_000, "iterations")


def test_the_command(krping: START, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdict, statistics and log are those of guests, and nothing is left."""
    tool = krping(",count=100,validate")
    status, output = tool.finish()
    assert status == 0, tool.errors
    report, text = json.loads(output), tool.errors
    assert report["ok"] is True
    assert report["iterations"] == report["validated"] == 100
    for side in ("server", "client"):
        assert list(report[side]) == NINE
        assert f"{side}:\n{' '.join(str(value) for value in report[side].values())}\n" in text
    assert report["server"]["read_bytes"] == report["server"]["write_bytes"] == 100 * 64
    bus = text.partition("-- the last iteration on the bus")[2].partition("-- statistics")[0]
    assert all(word in bus for word in ("SEND", "RDMA_READ", "RDMA_WRITE", "WQE", "CQE")), bus
    for name in "ab":
        assert "100 validated" in (tmp_path / f"host-{name}.log").read_text()
    assert cli.main(["log", str(tmp_path), "--view", "wr", "--decode"]) == 0
    assert "RDMA_READ" in capsys.readouterr().out
    tool.assert_nothing_left()


@pytest.mark.parametrize("hardware", [("connectx5",), ("connectx5,connectx3", "--pro")])
def test_adapters_of_other_kinds(tmp_path: Path, hardware: tuple[str, ...]) -> None:
    """A ConnectX-5 with one of its kind, and with a ConnectX-3 Pro: by RoCE v2."""
    with tools(tmp_path) as start:
        words = (*HOSTS, f"client,{ADDRESS},count=20,validate", "--json", "--log", str(tmp_path))
        tool = start(*words, "--card", *hardware)
        status, output = tool.finish()
        assert status == 0, tool.errors
        report = json.loads(output)
        assert report["validated"] == report["iterations"] == 20
        bus = tool.errors.partition("-- the last iteration on the bus")[2].partition("-- stat")[0]
        assert all(word in bus for word in ("SEND", "RDMA_READ", "RDMA_WRITE", "CQE")), bus
        tool.assert_nothing_left()


def test_an_option_that_the_card_has_not(tmp_path: Path) -> None:
    with tools(tmp_path) as start:
        tool = start(*HOSTS, f"client,{ADDRESS},count=1", "--card", "connectx5", "--pro")
        assert tool.finish()[0] == 2
        assert "--pro: a ConnectX-5 has RoCE v2 without that" in tool.errors
        tool.assert_nothing_left()


def test_endless_until_ctrl_c(krping: START, tmp_path: Path) -> None:
    tool = krping("")
    connected(tool, tmp_path)
    tool.signal(signal.SIGINT)
    status, output = tool.finish()
    assert status == 0, tool.errors
    report = json.loads(output)
    assert report["validated"] == report["iterations"] > 0
    tool.assert_nothing_left()


def test_a_side_that_is_killed_is_told_in_one_line(krping: START, tmp_path: Path) -> None:
    tool = krping("")
    connected(tool, tmp_path)
    os.kill(tool.child("--json server,"), signal.SIGKILL)
    status, output = tool.finish()
    assert status == 1
    last = tool.errors.splitlines()[-1]
    assert last.startswith("bluebridge: host ") and "Traceback" not in tool.errors
    assert json.loads(output)["error"] == last.removeprefix("bluebridge: ")
    tool.assert_nothing_left()


def test_a_kill_of_the_command_leaves_nothing(krping: START, tmp_path: Path) -> None:
    tool = krping("")
    connected(tool, tmp_path)
    tool.signal(signal.SIGKILL)
    tool.finish()
    tool.assert_nothing_left()


def test_two_runs_side_by_side(krping: START, tmp_path: Path) -> None:
    """They share no card: each has a device server of its own."""
    other = Tool(tmp_path, (*HOSTS, f"client,{ADDRESS},count=20", "--log", str(tmp_path / "2")))
    try:
        assert krping(",count=20").finish()[0] == other.finish()[0] == 0
    finally:
        other.kill()


def test_it_asks_for_nothing_but_libvfio_user(tmp_path: Path, vfio_user_library: Path) -> None:
    """No mirror, and a cache with nothing but the library: nobody looks for QEMU or a kernel."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for known in (vfio_user_library.parent, vfio_user_library.parent.parent / "versions.json"):
        (cache / known.name).symlink_to(known)
    done = _in(cache, tmp_path, BLUEBRIDGE_MIRROR="http://127.0.0.1:9/debian")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in cache.iterdir() if not path.name.startswith(".")} == {
        vfio_user_library.parent.name,
        "versions.json",
    }


def test_a_library_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = _in(tmp_path / "cache", tmp_path, PATH=str(tmp_path / "empty"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "this machine has no apt-get; use Debian 12 or 13" in done.stderr


def _in(cache: Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BLUEBRIDGE_CACHE": str(cache), **more}
    environment.pop(ENVIRONMENT, None)
    words = (*HOSTS, f"client,{ADDRESS},count=3", "--quiet", "--log", str(folder / "log"))
    return subprocess.run(
        [sys.executable, "-m", "bluebridge.host_tools.cli", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
