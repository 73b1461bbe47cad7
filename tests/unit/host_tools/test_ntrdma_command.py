"""`bluebridge ntrdma`: its command line, and measuring over TCP."""

from __future__ import annotations

import json

import pytest

from bluebridge.host_tools import arguments
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.krping.krping_command import KrpingRequest
from bluebridge.host_tools.ntrdma.network import Interfaces
from bluebridge.host_tools.ntrdma.ntrdma_command import main


def test_perf_over_tcp(capsys: pytest.CaptureFixture[str]) -> None:
    """Without guests or devices, in qperf's format; as JSON and nothing else."""
    line = "ntrdma perf --backend tcp --host a,b --quiet --count 5 rc_rdma_write_lat rc_bw"
    words = line.split()
    assert main(arguments.parse(words)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["rc_rdma_write_lat:", "rc_bw:"]
    assert lines[1].endswith(" us") and lines[3].endswith(" MB/sec")
    assert main(arguments.parse([*words, "--json"])) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["rc_rdma_write_lat", "rc_bw"]


def test_krping_names_its_provider() -> None:
    server, client = (f"{side},addr=10.0.0.1,port=9,count=1" for side in ("server", "client"))
    plain = KrpingRequest.parse(server, client)
    assert "--provider" not in plain.command(server=True)
    other = KrpingRequest.parse(server, client, "ntb+cpu")
    assert "--provider ntrdma --backend ntb+cpu --ip 10.0.0.2" in other.command(server=False)
    over_tcp = KrpingRequest.parse(server, client, "tcp")
    places = [f"--backend {role}:10.9.0.1:" for role in "sc"]
    assert places[0] in over_tcp.command(server=True)
    assert places[1] in over_tcp.command(server=False)


def test_counters_of_the_program() -> None:
    line = (
        "ntrdma0: sent 7 frames (700 bytes) in 3 bursts, 1 dropped; received 5 (9 bytes), 2 dropped"
    )
    found = Interfaces([line]).numbers(0)
    assert found == {"sent": 7, "bursts": 3, "unsent": 1, "received": 5, "lost": 2}
    with pytest.raises(LabError, match="no counters: nothing"):
        Interfaces(["nothing"]).numbers(0)
