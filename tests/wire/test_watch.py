"""`bluebridge watch` while a server works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from bluebridge.host_tools import cli
from bluebridge.host_tools.vfio_user.bus import WireBus
from tests.wire.players import Player
from tests.wire.server import ROOT, serving


def test_traffic_shows_up_while_it_runs(vfio_user_library: Path, tmp_path: Path) -> None:
    """Started before the traffic, it leaves out what was before it."""
    hcas = [word for name in "ab" for word in ("--hca", f"name={name},socket={tmp_path / name}")]
    arguments = [*hcas, "--log", str(tmp_path / "log")]
    buses = []
    with serving("bluebridge.device", arguments, tmp_path / "server.log"):
        buses = [WireBus(tmp_path / name) for name in "ab"]
        with open_hca(buses[0]) as first, open_hca(buses[1]) as second:
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
        for bus in buses:
            bus.close()


def test_a_folder_without_a_log_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["watch", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "holds no bus log" in captured.err
