"""How krping runs end before their time: cancelled, or with one side dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.guest.protocols.krping import sides as krping_sides
from tests.models.server import ROOT, ServerProcess
from tests.models.until import until
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, Run, Side, both, start
from tests.wire.krping_pair import opened

ADDRESS = f"addr={SERVER_IP},port=9999"
MANY = 1_000_000
"""Iterations nobody waits for."""


def test_cancelling_an_endless_client_ends_both_well(sides: tuple[Side, Side]) -> None:
    """Ctrl-C between two iterations: nothing is lost, the server sees a disconnect."""
    server, client = both(sides, "validate")
    until(lambda: bool(client.running) and client.running[0].iterations > 20)
    assert sides[0].host.statistics().startswith("1-mlx4_0 ")
    client.running[0].cancel()
    asked, served = client.result(), server.result()
    assert (asked.ok, asked.cancelled, served.ok) == (True, True, True), (asked, served)
    assert served.iterations == asked.iterations == asked.validated == served.validated


def test_cancelling_a_listening_server(sides: tuple[Side, Side]) -> None:
    """A server that waits for a client ends at once, and its port is free again."""
    server = start(sides[0], f"server,{ADDRESS}")
    assert sides[0].host.statistics() == "1 listen\n"
    server.running[0].cancel()
    assert server.result().cancelled
    for run in both(sides, "count=1"):
        assert run.result().ok


def test_cancelling_a_server_at_work(sides: tuple[Side, Side]) -> None:
    """Its client hears of it and fails."""
    server, client = both(sides, "validate")
    until(lambda: bool(client.running) and client.running[0].iterations > 20)
    server.running[0].cancel()
    assert server.result().cancelled
    result = client.result()
    assert not result.ok and result.error


def at_work(run: Run) -> None:
    """Wait until some iterations are done."""
    until(lambda: bool(run.running) and run.running[0].iterations > 5)


def test_cancelling_a_finite_run_is_a_failure(sides: tuple[Side, Side]) -> None:
    """Neither side made what it was asked for, and both say how far they came."""
    server, client = both(sides, f"count={MANY},validate")
    at_work(client)
    client.running[0].cancel()
    asked, served = client.result(), server.result()
    assert (asked.ok, asked.cancelled, served.ok) == (False, True, False)
    assert asked.error == f"interrupted after {asked.iterations} of {MANY} iterations"
    assert served.error == f"the client left after {served.iterations} of {MANY} iterations"
    assert 5 < asked.iterations == served.iterations < MANY
    assert f"krping: failed: {asked.error}" in sides[1].text


def test_cancelling_finite_runs_before_the_first_iteration(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server nobody came to; a client that has not been answered."""
    monkeypatch.setattr(krping_sides, "RESOLVE_SECONDS", 0.5)
    server = start(sides[0], f"server,{ADDRESS},count=3")
    server.running[0].cancel()
    result = server.result()
    assert (result.ok, result.cancelled, result.iterations) == (False, True, 0)
    assert result.error == "interrupted after 0 of 3 iterations"
    client = start(sides[1], "client,addr=192.168.69.200,port=9999,count=3")
    until(lambda: bool(client.running))
    client.running[0].cancel()
    result = client.result()
    assert (result.ok, result.iterations) == (False, 0) and result.error


def test_cancelling_a_benchmark(sides: tuple[Side, Side]) -> None:
    """Benchmarks are finite: also for the server of a one-sided one, which counts nothing."""
    server, client = both(sides, f"count={MANY},rlat,size=8")
    at_work(client)
    server.running[0].cancel()
    served, asked = server.result(), client.result()
    assert (served.ok, served.cancelled) == (False, True)
    assert served.error.startswith("interrupted after ")
    assert not asked.ok and asked.error


def test_cancelled_when_all_is_done(sides: tuple[Side, Side]) -> None:
    """A cancel that comes with the last iteration takes nothing away."""
    server, client = both(sides, "count=2")
    until(lambda: bool(client.running) and client.running[0].iterations == 2)
    client.running[0].cancel()
    assert client.result().ok and server.result().ok


def test_a_dead_client_is_no_good_end(hca_server: tuple[ServerProcess, Path]) -> None:
    """The client's process is killed: the server's run ends when told, the HCA lives on."""
    folder = hca_server[1]
    command = f"client,{ADDRESS},count={MANY},validate"
    with opened(folder / "a", SERVER_IP) as a:
        run = start(a, f"server,{ADDRESS},count={MANY},validate")
        client = subprocess.Popen(
            [sys.executable, "-m", "tests.wire.krping_process", folder / "b", CLIENT_IP, command],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        try:
            at_work(run)
        finally:
            client.kill()
            client.wait()
        with opened(folder / "b", CLIENT_IP) as b:  # the HCA is free: its guest is gone
            run.running[0].cancel()
            result = run.result()
            assert not result.ok and result.error
            assert 5 < result.iterations < MANY
            assert result.validated - result.iterations in (0, 1)  # read, not yet written back
            runs = both((a, b), "count=3,validate")
            assert [again.result().validated for again in runs] == [3, 3]
