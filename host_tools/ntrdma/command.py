"""`bluebridge ntrdma`: a pair of its own, the programs of NTRDMA in both guests."""

from __future__ import annotations

import argparse
import shlex
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from bluebridge.device.bridge_options import BridgeOptions
from bluebridge.device.layout.ntb.models import BarSizes
from bluebridge.guest.ntrdma.perf import TESTS
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.krping import command as krping
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.ntrdma import one_write
from bluebridge.host_tools.ntrdma.options import TCP
from bluebridge.host_tools.progress import Reporter

PERF = ("python3", "-m", "bluebridge.guest.ntrdma.perf")
SECONDS = 300.0
PINGS = 20
KRPING = f"addr=10.9.2.1,port=9999,count={PINGS},validate,size=100000"


def main(options: argparse.Namespace) -> int:
    """Show, or measure; 0 when all of it was right, else `LabError`."""
    if options.action == "demo":
        _demo(options)
        return 0
    unknown = set(options.tests) - set(TESTS)
    if unknown:
        raise UsageError(f"no such test: {', '.join(sorted(unknown))}", f"one of {' '.join(TESTS)}")
    if options.backend == TCP:
        _say(_over_tcp(options))
        return 0
    with Pair(_config(options), Reporter(quiet=options.quiet)) as pair:
        _say(perf(pair, options.backend, _words(options)))
    return 0


def _config(options: argparse.Namespace) -> LabConfig:
    bridge = BridgeOptions(options.model, BarSizes.NTRDMA.value)
    return LabConfig(log=options.log, hca=False, bridge=bridge)


def _words(options: argparse.Namespace) -> list[str]:
    """The options of the measuring program."""
    words = [*options.tests, "--size", str(options.size), "--count", str(options.count)]
    return [*words, "--json"] if options.json else words


def perf(pair: Pair, back_end: str, words: list[str]) -> str:
    """Run the measuring program in both guests; what the client prints."""
    line = shlex.join([*PERF, "--backend", back_end, *words])
    said: list[str] = []

    def serve() -> None:
        pair.a.run(f"{line} --serve", timeout=SECONDS)

    def ask() -> None:
        said.append(str(pair.b.run(line, timeout=SECONDS).text).strip())

    pair.together(serve, ask)
    return said[0]


def _over_tcp(options: argparse.Namespace) -> str:
    """Both programs as processes of this machine."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
    program = [sys.executable, *PERF[1:]]
    words = _words(options)
    with subprocess.Popen(
        [*program, *words, "--serve", "--backend", f"s:{place}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            client = subprocess.run(
                [*program, *words, "--backend", f"c:{place}"],
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        finally:
            server.terminate()
    if client.returncode:
        raise LabError(client.stderr.strip().splitlines()[-1])
    return client.stdout.strip()


def _demo(options: argparse.Namespace) -> None:
    provider = ("--provider", "ntrdma", "--backend", options.backend)
    request = krping.Request.parse(f"server,{KRPING}", f"client,{KRPING}", provider)
    with Pair(_config(options), Reporter(quiet=options.quiet)) as pair:
        _title(f"{PINGS} pings of krping, unchanged, over NTRDMA")
        outcome = krping.run(pair, request)
        if not outcome.ok:
            raise LabError(outcome.failure())
        _say(outcome.client.line)
        _say(f"{outcome.client.result['validated']} of {PINGS} iterations validated")
        _title("qperf's latencies of sends, writes and reads of 8 bytes")
        tests = ["rc_lat", "rc_rdma_write_lat", "rc_rdma_read_lat", "--count", "50"]
        _say(perf(pair, options.backend, tests))
        _title("one RDMA write of 8 bytes on the buses of both guests")
        _show_write(Path(pair.logs))
        logs = pair.log_name
    _say(f"\nall of it was right; the log: bluebridge log {logs} --decode, or --view wr --tree, or --view ntrdma")


def _show_write(logs: Path) -> None:
    for line in one_write.EXPLANATION:
        _say(line)
    for line in one_write.lines(logs, "b"):
        _say(line)


def _title(text: str) -> None:
    _say(f"\n-- {text}")


def _say(text: str) -> None:
    print(text, flush=True)
