"""Programs over NTRDMA as a user starts them in two processes: measuring and ping-pong."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from bluebridge.guest.protocols.ntrdma.perf import TESTS
from tests.unit.ntrdma.tcp.programs import SECONDS, program, success

PERF = "protocols.ntrdma.perf"
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
