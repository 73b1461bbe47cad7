"""NTRDMA between two guests, as its users call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bluebridge.guest.ntrdma.back_ends import BACK_END
from bluebridge.guest.perf.sides import TESTS
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.rtrs.fio import Verification
from bluebridge.host_tools.rtrs.session import mapped
from tests.campaigns import rtrs_matrix
from tests.campaigns.survival.__main__ import survive
from tests.models.lab_tool import Tool

SELDOM = [pytest.param(each, marks=pytest.mark.long) for each in ("ntb+cpu", "tcp")]
"""Tests of the wire and of two processes have these, too."""
PINGS = "addr=10.9.2.1,port=9999,count=50,size=20000"


@pytest.mark.brief
def test_the_demonstration(tool: Callable[..., Tool], tmp_path: Path) -> None:
    bluebridge = tool("ntrdma", "demo", "--quiet", "--log", str(tmp_path / "log"))
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    assert "20 of 20 iterations validated" in output
    for name in ("rc_lat", "rc_rdma_write_lat", "rc_rdma_read_lat"):
        assert f"{name}:\n    latency  =  " in output
    network = output.split("-- the Ethernet device")[1].split("-- one RDMA write")[0]
    assert pings.ANSWERED in network and "the same, " in network
    assert "iperf3 from b to a: " in network
    assert network.count(" 0 dropped") == 4
    write = output.split("-- one RDMA write")[1]
    for said in ("doorbell of the DMA engine", "write into the window", "descriptor, interrupt"):
        assert said in write
    bluebridge.assert_nothing_left()


@pytest.mark.parametrize("back_end", ["ntb+cpu", SELDOM[1]])
def test_krping_without_the_engine(
    tool: Callable[..., Tool], tmp_path: Path, back_end: str
) -> None:
    """Registrations by work request and invalidation by the peer."""
    options = f"{PINGS},mem_mode=reg,server_inv"
    bluebridge = tool(
        "krping",
        *("--provider", "ntrdma", "--backend", back_end, "--json", "--quiet"),
        *("--log", str(tmp_path / "log"), f"server,{options}", f"client,{options}"),
    )
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    report = json.loads(output.splitlines()[-1])
    assert (report["iterations"], report["validated"]) == (50, 50)
    bluebridge.assert_nothing_left()


@pytest.mark.parametrize("back_end", ["ntb+dma", *SELDOM])
def test_every_figure_of_the_table(
    tool: Callable[..., Tool], tmp_path: Path, back_end: str
) -> None:
    few = "--count", "10", "--size", "65536"
    words = "--backend", back_end, *few, "--json", "--quiet", "--log", str(tmp_path / "log")
    bluebridge = tool("ntrdma", "perf", *words)
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    figures = json.loads(output)
    assert list(figures) == list(TESTS)
    assert all(value > 0 for each in figures.values() for value in each.values())
    bluebridge.assert_nothing_left()


def test_a_file_system_on_a_disk_over_the_bridge(lab: Lab) -> None:
    """RNBD and RTRS in both guests, with no HCA in either."""
    pair_of = {"rtrs": ("python", "python"), "hca": False, "bridge": ntrdma.bridge()}
    with lab.pair(**pair_of) as pair, mapped(pair) as session:
        assert [route.port for route in session.routes] == [""]
        device, client = session.device, pair.a
        client.run(f"modprobe ext4 && mkfs.ext4 -q {device} && mount -t ext4 {device} /mnt")
        client.run("head -c 3000000 /dev/urandom > /mnt/file && md5sum /mnt/file > /tmp/sum")
        client.run("umount /mnt && echo 3 > /proc/sys/vm/drop_caches")
        client.run(f"mount -t ext4 {device} /mnt && md5sum -c /tmp/sum && umount /mnt")
        assert Verification(client, device, 5).finish().ok
        (path,) = session.client.statistics()
        assert path.connected and path.rdma[3] > 3_000_000, path


@pytest.mark.long
def test_a_short_row_of_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """A path over the bridge and one over an HCA, cut in turn.

    A cut of 5 s is shorter than the HCA's retries, so only the order to disconnect ends a path.
    """
    words = "--provider", "ntrdma", "--minutes", "0.5", "--period", "10", "--quiet"
    status = rtrs_matrix.main(words)
    output = capsys.readouterr().out
    assert status == 0, output
    cells = [cell.strip() for cell in output.splitlines()[-1].strip("|").split("|")]
    assert cells[:2] == ["python, ntrdma ntb+dma"] * 2
    assert cells[5:7] == ["0", "0"] and int(cells[3]) >= 2, cells
    assert int(cells[4]) > 0 and int(cells[8]) > 0, cells


@pytest.mark.parametrize("times", [3, pytest.param(8, marks=pytest.mark.long)])
def test_one_side_lives_on(tmp_path: Path, times: int) -> None:
    """Killed and reloaded in three states, and rebooted; no register beside own traffic."""
    said: list[str] = []
    config = ntrdma.config(LabConfig(log=tmp_path / "log"), BACK_END, "intel-gen1")
    survive(config, BACK_END, times, said.append)
    assert any(line.startswith("rebooted: 1 times") for line in said)
