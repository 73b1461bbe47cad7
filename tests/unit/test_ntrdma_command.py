"""`bluebridge ntrdma`: its command line, measuring over TCP."""

from __future__ import annotations

import pytest

from bluebridge.host_tools import arguments
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.krping.command import Request
from bluebridge.host_tools.ntrdma.command import main


def test_perf_over_tcp(capsys: pytest.CaptureFixture[str]) -> None:
    """Without guests, in qperf's format."""
    words = [
        "ntrdma",
        "perf",
        "--backend",
        "tcp",
        "--no-guests",
        "--count",
        "5",
        "rc_rdma_write_lat",
        "rc_bw",
    ]
    assert main(arguments.parse(words)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["rc_rdma_write_lat:", "rc_bw:"]
    assert lines[1].endswith(" us") and lines[3].endswith(" MB/sec")


def test_a_test_that_is_none() -> None:
    with pytest.raises(UsageError, match="no such test: ud_lat"):
        main(arguments.parse(["ntrdma", "perf", "ud_lat"]))


def test_processes_have_no_bridge() -> None:
    with pytest.raises(UsageError, match="a bridge stands between guests"):
        main(arguments.parse(["ntrdma", "perf", "--no-guests", "--backend", "ntb+cpu"]))


def test_krping_names_its_provider() -> None:
    server, client = (f"{side},addr=10.0.0.1,port=9,count=1" for side in ("server", "client"))
    plain = Request.parse(server, client)
    assert "--provider" not in plain.command(server=True)
    other = Request.parse(server, client, "ntb+cpu")
    assert "--provider ntrdma --backend ntb+cpu --ip 10.0.0.2" in other.command(server=False)
    over_tcp = Request.parse(server, client, "tcp")
    places = [f"--backend {role}:10.9.0.1:" for role in "sc"]
    assert places[0] in over_tcp.command(server=True)
    assert places[1] in over_tcp.command(server=False)
