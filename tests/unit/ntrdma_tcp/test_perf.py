"""NTRDMA's measuring program, in two processes over TCP."""

from __future__ import annotations

import json

from bluebridge.guest.ntrdma.perf import TESTS
from tests.unit.ntrdma_tcp.programs import program, success

FEW = ("--count", "20", "--size", "100000")


def test_every_test_has_a_figure(free_port: int) -> None:
    place = f"127.0.0.1:{free_port}"
    with (
        program("ntrdma.perf", "--serve", "--backend", f"s:{place}", *FEW) as server,
        program("ntrdma.perf", "--json", "--backend", f"c:{place}", *FEW) as client,
    ):
        said = success(client)
        success(server)
    assert said.startswith("rc_bw:\n    bw  =  ")
    found = json.loads(said.splitlines()[-1])
    assert list(found) == list(TESTS)
    assert all(value > 0 for figures in found.values() for value in figures.values())
