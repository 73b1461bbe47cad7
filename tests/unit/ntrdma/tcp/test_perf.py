"""NTRDMA's measuring program, in two processes over TCP."""

from __future__ import annotations

import json

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
