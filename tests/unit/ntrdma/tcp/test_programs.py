"""Programs over NTRDMA as a user starts them in two processes: measuring and ping-pong."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from typing import Any

from bluebridge.guest.connections import open_connections
from bluebridge.guest.protocols.ntrdma.link import CLIENT
from bluebridge.guest.protocols.ntrdma.perf import PORT, TESTS, Measured
from bluebridge.guest.providers import open_ntrdma
from tests.unit.ntrdma.tcp.programs import SECONDS, program, success

PERF = "protocols.ntrdma.perf"
PEER_SECONDS = 15.0
FEW = ("--count", "20", "--size", "100000")


def test_every_test_has_a_figure(free_port: int) -> None:
    place = f"127.0.0.1:{free_port}"
    with (
        program(PERF, "--serve", "--backend", f"s:{place}", *FEW) as server,
        program(PERF, "--json", "--backend", f"c:{place}", *FEW) as client,
    ):
        said = success(client)
        success(server)
    found = json.loads(said)
    assert list(found) == list(TESTS)
    assert all(value > 0 for figures in found.values() for value in figures.values())


def test_a_client_asks_for_more_than_the_server_has(free_port: int) -> None:
    """The server says what it would need, and both end."""
    place = f"127.0.0.1:{free_port}"
    with (
        program(PERF, "--serve", "--backend", f"s:{place}", "--size", "5000") as server,
        program(PERF, "rc_bw", "--backend", f"c:{place}", "--size", "5001") as client,
    ):
        said, _ = server.communicate(timeout=SECONDS)
        assert server.returncode == 1
        assert "perf: the peer asks for messages of 5001 bytes: begin with --size 5001" in said
        said, _ = client.communicate(timeout=SECONDS)
        assert client.returncode == 1 and said.startswith("perf: ")


def test_memory_that_is_not_there(free_port: int) -> None:
    place = f"s:127.0.0.1:{free_port}"
    with program(PERF, "--serve", "--backend", place, "--size", str(1 << 30)) as server:
        said, _ = server.communicate(timeout=SECONDS)
    assert server.returncode == 1 and said.startswith("perf: ") and "do not fit" in said


OVER = ("latency", "--provider", "ntrdma", "--backend")


def test_writes_to_and_fro(free_port: int) -> None:
    """Payloads that fit into the entry, and one that does not."""
    place = f"127.0.0.1:{free_port}"
    with program(*OVER, f"s:{place}") as first, program(*OVER, f"c:{place}") as second:
        ends = heard(first), heard(second)
        tell(first, ends[1])
        tell(second, ends[0])
        for size in (8, 220, 4096):
            asked = {"size": size, "count": 20}
            tell(second, {**asked, "first": False})
            assert heard(second) == {"ready": size}
            tell(first, {**asked, "first": True})
            assert all(heard(each)["best"] > 0 for each in (first, second))


def test_a_peer_that_is_killed_while_its_write_is_awaited(free_port: int) -> None:
    """By the ping-pong, which looks at its memory only."""
    place = f"127.0.0.1:{free_port}"
    with program(*OVER, f"s:{place}") as first, program(*OVER, f"c:{place}") as second:
        ends = heard(first), heard(second)
        tell(first, ends[1])
        tell(second, ends[0])
        tell(second, {"size": 8, "count": 20, "first": False})
        assert heard(second) == {"ready": 8}
        first.kill()
        said, _ = second.communicate(timeout=PEER_SECONDS)
        assert second.returncode == 1 and said == "latency: the peer is lost\n"


def test_a_peer_that_goes_before_it_asks_for_a_test(free_port: int) -> None:
    """The measurement's server waits for a note in its memory, and has nothing under way."""
    place = f"127.0.0.1:{free_port}"
    with program(PERF, "--serve", "--backend", f"s:{place}") as server:
        with open_ntrdma(f"c:{place}") as device, ExitStack() as owned:
            Measured(device, 4096).connect(open_connections(device, CLIENT, owned), PORT)
        said, _ = server.communicate(timeout=PEER_SECONDS)
    assert server.returncode == 1 and said.endswith("perf: the peer is lost\n")


def tell(process: subprocess.Popen[str], values: dict[str, Any]) -> None:
    """A line of JSON."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(values) + "\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    """A line of JSON."""
    assert process.stdout is not None
    values: dict[str, Any] = json.loads(process.stdout.readline())
    return values
