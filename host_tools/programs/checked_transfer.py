"""TCP between the guests: random bytes whose checksums are compared, and the rate by iperf3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import readiness
from bluebridge.host_tools.programs.readiness import IPERF_PORT

_LIMIT = 120.0
MIB = 1 << 20


def tcp_rate(pair: Pair, server: str, *, backwards: bool, seconds: int) -> float:
    """Return the rate in MiB/s from guest b to guest a, whose address is `server`.

    With `backwards` it is from a to b. The first second is not counted. Raises `LabError`.
    """
    options = f"-t {seconds} -O 1 --json {'-R' if backwards else ''}"
    client = f"iperf3 -c {server} {options}"
    said = readiness.serve_and_run(pair, "iperf3 -s -1", client, IPERF_PORT, _LIMIT + seconds)
    report: dict[str, Any] = json.loads(said)
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8 / MIB


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


def transfer(pair: Pair, address: str, mib: int, say: Callable[[str], None]) -> float:
    """Send `mib` MiB to `address` on guest b; return the rate in MB/s. Raises `LabError`.

    `say` is called with the number of bytes and the checksum on each side.
    """
    said: dict[str, list[str]] = {}

    def run(guest: Vm, *words: str) -> None:
        said[guest.name] = guest.run(["python3", "-c", *words], timeout=_LIMIT).text.split()

    pair.together(lambda: run(pair.b, _RECEIVE), lambda: run(pair.a, _SEND, address, str(mib)))
    (sent, told, seconds), (taken, seen) = said[pair.a.name], said[pair.b.name]
    say(f"a sent     {sent} bytes, md5 {told}")
    say(f"b received {taken} bytes, md5 {seen}")
    if (sent, told) != (taken, seen):
        other = "the bytes that arrived are not those that were sent"
        raise LabError(other, f"read {pair.logs}")
    return int(sent) / float(seconds) / 1e6
