"""Servers in guest a, clients in guest b: readiness, perftest's tables, TCP by iperf3."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import Running

IPERF_PORT = 5201
VERBS_PORT = 18515
"""The TCP port on which programs of libibverbs and perftest exchange queue pair numbers."""
CM_LISTENING = "rdma resource show cm_id | grep -q LISTEN"
"""A shell condition that holds when something listens through rdma_cm."""

BEST, WORST, TYPICAL = 2, 3, 4
"""Columns of an `ib_*_lat`: t_min, t_max, t_typical, all in microseconds."""
AVERAGE = 3
"""The column of an `ib_*_bw` table with BW average, in MiB/s."""
UNEVEN_CLOCK = r"Can't produce a report|Correlation coefficient r\^2"
"""A regular expression of the output of a program that could not sample the clock."""
_ATTEMPTS = 20

_LIMIT = 120.0
MIB = 1 << 20

PORT = 5001
_RECEIVE = f"""
import hashlib, socket
with socket.create_server(("", {PORT})) as server:
    connection, _ = server.accept()
    seen, total = hashlib.md5(), 0
    while data := connection.recv(1 << 16):
        seen.update(data)
        total += len(data)
print(total, seen.hexdigest())
"""
_SEND = f"""
import hashlib, os, socket, sys, time
address, mib = sys.argv[1:]
data = os.urandom(int(mib) << 20)
while True:
    try:
        connection = socket.create_connection((address, {PORT}), 10)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
begin = time.monotonic()
connection.settimeout(None)
connection.sendall(data)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(len(data), hashlib.md5(data).hexdigest(), time.monotonic() - begin)
"""


def serve_and_run(pair: Pair, server: str, client: str, port: int, seconds: float) -> str:
    """Run shell line `server` in a and, once it listens at `port`, `client` in b.

    Each may take `seconds`. Returns the client's output. Raises `LabError` when the client fails.
    """
    with Running(pair.a, server, seconds) as serving:
        serving.until(listening(port))
        said = pair.b.run(client, timeout=seconds).text
        serving.wait()
    return said


def listening(port: int) -> str:
    """Return a shell condition that holds when something listens at the TCP port."""
    return f"ss -Hltn 'sport = :{port}' | grep -q ."


def run(pair: Pair, words: str, server: str, seconds: float) -> str:
    """Run `words` in both guests, the client in b with `server`, guest a's address.

    Returns the client's output. Raises `LabError` when that fails.
    """
    return serve_and_run(pair, words, f"{words} {server}", VERBS_PORT, seconds)


def figures(pair: Pair, words: str, server: str, seconds: float) -> list[float]:
    """Return the last line of figures of a client that runs as in `run`, by the columns above.

    It runs again while it cannot sample the guest's clock: then figures are infinite, or a rate is
    0. Raises `LabError` when a program fails, prints no figures, or finds no clock.
    """
    for _ in range(_ATTEMPTS):
        said = run(pair, words, server, seconds)
        if len(row := last_row(said)) <= AVERAGE:
            raise LabError(f"`{words}` printed no figures", transcript=said)
        if all(map(math.isfinite, row)) and row[AVERAGE] > 0:
            return row
    raise LabError(
        f"`{words}` could not sample the guest's clock in {_ATTEMPTS} attempts",
        "go on when the host is less busy",
    )


def last_row(said: str) -> list[float]:
    """Return the last line of figures in a client's output; empty if there is none."""
    rows = [line.split() for line in said.splitlines() if line.strip()[:1].isdecimal()]
    with contextlib.suppress(ValueError):
        return [float(cell) for cell in rows[-1]] if rows else []
    return []


def tcp_rate(pair: Pair, server: str, *, backwards: bool, seconds: int) -> float:
    """Return the rate in MiB/s from guest b to guest a, whose address is `server`.

    With `backwards` it is from a to b. The first second is not counted. Raises `LabError`.
    """
    options = f"-t {seconds} -O 1 --json {'-R' if backwards else ''}"
    client = f"iperf3 -c {server} {options}"
    said = serve_and_run(pair, "iperf3 -s -1", client, IPERF_PORT, _LIMIT + seconds)
    report: dict[str, Any] = json.loads(said)
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8 / MIB


def transfer(
    pair: Pair,
    address: str,
    mib: int,
    say: Callable[[str], None] = lambda _: None,
    *,
    backwards: bool = False,
    limit: float = _LIMIT,
) -> float:
    """Send `mib` MiB to `address` on guest b; return the rate in MB/s. Raises `LabError`.

    `say` is called with the number of bytes and the checksum on each side. With `backwards` the
    address is on guest a, and b sends.
    """
    said: dict[str, list[str]] = {}
    sender, receiver = (pair.b, pair.a) if backwards else (pair.a, pair.b)

    def run(guest: Vm, *words: str) -> None:
        said[guest.name] = guest.run(["python3", "-c", *words], timeout=limit).text.split()

    pair.together(lambda: run(receiver, _RECEIVE), lambda: run(sender, _SEND, address, str(mib)))
    (sent, told, seconds), (taken, seen) = said[sender.name], said[receiver.name]
    say(f"{sender.name} sent     {sent} bytes, md5 {told}")
    say(f"{receiver.name} received {taken} bytes, md5 {seen}")
    if (sent, told) != (taken, seen):
        other = "the bytes that arrived are not those that were sent"
        raise LabError(other, f"read {pair.logs}")
    return int(sent) / float(seconds) / 1e6
