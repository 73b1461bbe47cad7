"""Programs over NTRDMA as a user starts them in two processes: measuring."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack

from bluebridge.guest.connections import open_connections
from bluebridge.guest.link import CLIENT
from bluebridge.guest.perf.sides import PORT, TESTS, Measured
from bluebridge.guest.providers import open_ntrdma
from tests.unit.ntrdma.tcp.programs import SECONDS, program, success, until_said

PERF = "perf", "--provider", "ntrdma"
PEER_SECONDS = 15.0
FEW = ("--count", "20", "--size", "100000")


def test_every_test_has_a_figure(free_port: int) -> None:
    place = f"127.0.0.1:{free_port}"
    with (
        program(*PERF, "--serve", "--backend", f"s:{place}", *FEW) as server,
        program(*PERF, "--json", "--backend", f"c:{place}", *FEW) as client,
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
        program(*PERF, "--serve", "--backend", f"s:{place}", "--size", "5000") as server,
        program(*PERF, "rc_bw", "--backend", f"c:{place}", "--size", "5001") as client,
    ):
        said, _ = server.communicate(timeout=SECONDS)
        assert server.returncode == 1
        assert "perf: the peer asks for messages of 5001 bytes: begin with --size 5001" in said
        said, _ = client.communicate(timeout=SECONDS)
        assert client.returncode == 1 and said.startswith("perf: ")


def test_memory_that_is_not_there(free_port: int) -> None:
    place = f"s:127.0.0.1:{free_port}"
    with program(*PERF, "--serve", "--backend", place, "--size", str(1 << 30)) as server:
        said, _ = server.communicate(timeout=SECONDS)
    assert server.returncode == 1 and said.startswith("perf: ") and "do not fit" in said


def test_lines_on_the_input_ask_for_tests_of_any_size(free_port: int) -> None:
    """Payloads that fit into the entry, and one that does not, in perftest's form."""
    place = f"127.0.0.1:{free_port}"
    over = ("--provider", "ntrdma", "--inline", "220", "--backend")
    with (
        program("perf", "--serve", *over, f"s:{place}") as server,
        program("perf", "--perftest", *over, f"c:{place}", "-") as client,
    ):
        assert client.stdin is not None and client.stdout is not None
        rows = []
        for size in (8, 220, 4096):
            client.stdin.write(f"rc_rdma_write_lat 20 {size}\n")
            client.stdin.flush()
            while (row := client.stdout.readline().split())[0].startswith("#"):
                assert row[2:5] == ["t_min[usec]", "t_max[usec]", "t_typical[usec]"]
            rows.append(row)
        client.stdin.write(f"rc_bw 20 {1 << 21}\n")
        assert (
            "perf: no such test: rc_bw of 2097152 bytes" in client.communicate(timeout=SECONDS)[0]
        )
        server.communicate(timeout=SECONDS)
    assert [row[:2] for row in rows] == [[size, "20"] for size in ("8", "220", "4096")]
    for row in rows:
        least, most, typical, *_ = map(float, row[2:])
        assert 0 < least <= typical <= most


def test_a_peer_that_is_killed_while_its_write_is_awaited(free_port: int) -> None:
    """By the ping-pong, which looks at its memory only."""
    place = f"127.0.0.1:{free_port}"
    words = ("rc_rdma_write_lat", "--count", "1000000")
    with (
        program(*PERF, "--serve", "--backend", f"s:{place}") as server,
        program(*PERF, *words, "--backend", f"c:{place}") as client,
    ):
        until_said(server, "listening")
        time.sleep(1)
        client.kill()
        said, _ = server.communicate(timeout=PEER_SECONDS)
        assert server.returncode == 1 and said == "perf: the peer is lost\n"


def test_a_peer_that_goes_before_it_asks_for_a_test(free_port: int) -> None:
    """The measurement's server waits for a note in its memory, and has nothing under way."""
    place = f"127.0.0.1:{free_port}"
    with program(*PERF, "--serve", "--backend", f"s:{place}") as server:
        with open_ntrdma(f"c:{place}") as device, ExitStack() as owned:
            Measured(device, 4096).connect(open_connections(device, CLIENT, owned), PORT)
        said, _ = server.communicate(timeout=PEER_SECONDS)
    lost = ("perf: the peer is lost", "perf: the connection was not established")
    assert server.returncode == 1 and said.splitlines()[-1] in lost  # by how soon it heard of it


TO_NOBODY = """
import signal
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
server = TcpTransport("s:127.0.0.1:0")
client = TcpTransport(f"c:127.0.0.1:{server.port}")
client.serve()
server.serve()
client.close()
for _ in range(3):
    server.imm32(8192, 1)
    server.flush()
print(server.serve().links)
"""


def test_a_program_outlives_a_peer_that_left_while_it_sends() -> None:
    """Also one that ends, as rtrs does, when nobody reads its output any more."""
    done = subprocess.run([sys.executable, "-c", TO_NOBODY], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[False]\n"), done.stderr
