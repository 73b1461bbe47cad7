"""NTRDMA's measuring program, in two processes over TCP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing

from bluebridge.guest.ntrdma.perf import TESTS

PROGRAM = (sys.executable, "-m", "bluebridge.guest.ntrdma.perf")


def free_port() -> int:
    """A port nobody listens at."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        number: int = listener.getsockname()[1]
        return number


def test_every_test_has_a_figure() -> None:
    place = f"127.0.0.1:{free_port()}"
    few = ("--count", "20", "--size", "100000")
    server = subprocess.Popen([*PROGRAM, "--serve", "--backend", f"s:{place}", *few[2:]])
    client = subprocess.run(
        [*PROGRAM, "--backend", f"c:{place}", "--json", *few],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (client.returncode, server.wait(20)) == (0, 0), client.stderr
    assert client.stdout.startswith("rc_bw:\n    bw  =  ")
    found = json.loads(client.stdout.splitlines()[-1])
    assert list(found) == list(TESTS)
    assert all(value > 0 for figures in found.values() for value in figures.values())
