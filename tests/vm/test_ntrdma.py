"""NTRDMA between two guests, as its users call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import BOOT_SECONDS, Tool

pytestmark = pytest.mark.timeout(2 * BOOT_SECONDS)

PINGS = "addr=10.9.2.1,port=9999,count=50,size=20000"


def test_the_demonstration(tool: Callable[..., Tool], tmp_path: Path) -> None:
    bluebridge = tool("ntrdma", "demo", "--quiet", "--log", str(tmp_path / "log"))
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    assert "20 of 20 iterations validated" in output
    for name in ("rc_lat", "rc_rdma_write_lat", "rc_rdma_read_lat"):
        assert f"{name}:\n    latency  =  " in output
    write = output.split("-- one RDMA write")[1]
    for said in ("CHANNEL[0].dma_count", "through the peer's window into", "interrupt message"):
        assert said in write
    bluebridge.assert_nothing_left()


def test_krping_by_the_processor(tool: Callable[..., Tool], tmp_path: Path) -> None:
    """Registrations by work request and invalidation by the peer, without the DMA engine."""
    options = f"{PINGS},mem_mode=reg,server_inv"
    bluebridge = tool(
        "krping",
        *("--provider", "ntrdma", "--backend", "ntb+cpu", "--json", "--quiet"),
        *("--log", str(tmp_path / "log"), f"server,{options}", f"client,{options}"),
    )
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    report = json.loads(output.splitlines()[-1])
    assert (report["iterations"], report["validated"]) == (50, 50)
    bluebridge.assert_nothing_left()
