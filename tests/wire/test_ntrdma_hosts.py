"""NTRDMA between two programs of this machine: `ntrdma perf` and `krping` with `--host a,b`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from tests.models.lab_tool import Tool, tools

Start = Callable[..., Tool]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `bluebridge` with words and without guests; its log is in the test's folder."""
    with tools(tmp_path) as begin:
        yield lambda *words: begin(*words, "--host", "a,b", "--log", str(tmp_path))


@pytest.mark.parametrize(
    "how", ["--backend=ntb+dma", "--backend=ntb+cpu", "--window=registered --model=intel-gen4"]
)
def test_perf(start: Start, tmp_path: Path, how: str) -> None:
    """Figures of the tests that were asked for, and the stores of both sides in the log."""
    tests = ["rc_rdma_write_lat", "rc_lat", "rc_rdma_read_bw"]
    tool = start("ntrdma", "perf", *tests, *how.split(), "--count=5", "--size=5000", "--json")
    status, output = tool.finish()
    assert status == 0, tool.errors
    found = json.loads(output)
    assert list(found) == tests
    assert found["rc_lat"]["p50_us"] >= found["rc_lat"]["min_us"] > 0
    assert {"a.ntb4", "b.ntb4"} <= {event.device for event in LogReader(tmp_path)}
    tool.assert_nothing_left()


def test_krping(start: Start) -> None:
    words = (f"{side},addr=10.9.2.1,port=9999,count=5,size=5000" for side in ("server", "client"))
    tool = start("krping", "--provider", "ntrdma", *words, "--json")
    status, output = tool.finish()
    assert status == 0, tool.errors
    assert json.loads(output)["validated"] == 5
    tool.assert_nothing_left()


def test_a_side_that_dies_is_told_in_one_line(start: Start, tmp_path: Path) -> None:
    tool = start("ntrdma", "perf", "rc_lat", "--count=1000000")
    listens = tmp_path / "host-a.log"
    tool.wait_until(lambda: listens.exists() and "listening" in listens.read_text(), "a server")
    os.kill(tool.child("--serve"), signal.SIGKILL)
    assert tool.finish()[0] == 1
    last = tool.errors.splitlines()[-1]
    assert last.startswith("bluebridge: host ") and "Traceback" not in tool.errors
    tool.assert_nothing_left()
