"""`bluebridge ntrdma`: starts a pair of guests and runs the programs of NTRDMA in both."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path

from bluebridge.device.buslog.reader import LogError
from bluebridge.device.layout.ntb.models import GEN4
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.ntrdma import back_ends
from bluebridge.guest.ntrdma.back_ends import NTB_CPU
from bluebridge.guest.ntrdma.interface import DEFAULT_MTU
from bluebridge.guest.perf.sides import TESTS
from bluebridge.host_tools.analyzer.analysis import Transfer, transfers
from bluebridge.host_tools.analyzer.views.work_requests import header, line, tree
from bluebridge.host_tools.errors import LabError, Reporter, UsageError
from bluebridge.host_tools.krping import krping_command as krping
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.ntrdma.network import ADDRESSES, interfaces
from bluebridge.host_tools.ntrdma.ntrdma_options import REGISTERED
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import tcp_rate
from bluebridge.printable import printable_lines

EXPLANATION = (
    "The sender's engine copies the data, the send ring's new entry, the ring's index and a",
    "virtual doorbell into the peer's memory, then stores the peer's interrupt message. The peer's",
    "engine copies the completion, its ring's index and a doorbell back, and interrupts.",
)
PAYLOAD = 8
_PATIENCE = 20.0
_PAUSE = 0.5

PERF = ("python3", "-m", "bluebridge.guest.perf", "--provider", "ntrdma")
SECONDS = 300.0
PINGS = 20
TRANSFER_MIB = 16
LONG = 1 << 20
_SIZES = dict.fromkeys((NTB_CPU, NTB_CPU + back_ends.REGISTERED), 1 << 16)
"""The sizes in bytes of bandwidth tests by back end, unless a user gives one."""
KRPING = f"addr=10.9.2.1,port=9999,count={PINGS},validate,size=100000"


def one_write(logs: Path, sender: str) -> list[str]:
    """Return the last write of `PAYLOAD` bytes that guest `sender` posted, with its transactions.

    Raises `LabError` when the log has none after a while; the latest events may not be written yet.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            found = _last_write(logs, sender)
        except LogError as error:
            raise LabError(f"no bus log: {error}") from error
        if found is not None:
            return [*header(None), line(found, None), *tree(found, None)]
        if time.monotonic() > deadline:
            raise LabError("the bus log has no RDMA write", f"read it: {logs}")
        time.sleep(_PAUSE)


def _last_write(logs: Path, sender: str) -> Transfer | None:
    """Return the sender's last answered write, if possible one that shares no transaction."""
    found: Transfer | None = None
    wanted = sender, WorkCode.WRITE.name, PAYLOAD, WorkStatus.OK.name
    for transfer in transfers(logs):
        if (transfer.device, transfer.opcode, transfer.length, transfer.status) == wanted:
            alone = not any(one.repeated for one in transfer.transactions)
            found = transfer if alone or found is None else found
    return found


def main(options: argparse.Namespace) -> int:
    """Run the action of the command line; return 0. Raises `LabError` when a result is wrong."""
    if options.action != "demo" and options.window == REGISTERED:
        options.backend = _registered(options)
    _ACTIONS[options.action](options)
    return 0


def _perf(options: argparse.Namespace) -> None:
    unknown = set(options.tests) - set(TESTS)
    if unknown:
        raise UsageError(f"no such test: {', '.join(sorted(unknown))}", f"one of {' '.join(TESTS)}")
    with Pair(_config(options), Reporter(quiet=options.quiet)) as pair:
        _say(perf(pair, options.backend, _words(options)))


def _registered(options: argparse.Namespace) -> str:
    """The back end whose window shows registered memory only; raises `UsageError`."""
    if options.backend == ntrdma.TCP:
        raise UsageError("no window leads to a peer over TCP, which reaches one arena only")
    if options.model != GEN4.name:
        raise UsageError(
            f"the windows of {options.model} begin at multiples of their size",
            f"for registered memory alone: --model {GEN4.name}",
        )
    return str(options.backend + back_ends.REGISTERED)


def _config(options: argparse.Namespace) -> LabConfig:
    base = LabConfig(log=options.log, hosts=getattr(options, "hosts", None) or "")
    return ntrdma.config(base, options.backend, options.model)


def _words(options: argparse.Namespace) -> list[str]:
    size = options.size or _SIZES.get(options.backend, LONG)
    words = [*options.tests, "--size", str(size), "--count", str(options.count)]
    return [*words, "--json"] if options.json else words


def perf(pair: Pair, back_end: str, words: list[str]) -> str:
    """Run the measuring program on both sides; return the client's output. Raises `LabError`."""
    a, b = pair.config.names
    said: list[str] = []
    served, asked = ntrdma.words(back_end, pair.config)
    serve = pair.program(a, shlex.join([*PERF, "--backend", served, *words, "--serve"]), SECONDS)
    ask = pair.program(b, shlex.join([*PERF, "--backend", asked, *words]), SECONDS)
    pair.together(serve, lambda: said.append(ask().strip()))
    return said[0]


def _demo(options: argparse.Namespace) -> None:
    request = krping.KrpingRequest.parse(f"server,{KRPING}", f"client,{KRPING}", options.backend)
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
        _title("the Ethernet device: a network interface in each guest")
        _show_network(pair, options.backend)
        if options.backend != ntrdma.TCP:
            _title("one RDMA write of 8 bytes on the buses of both guests")
            _say("\n".join((*EXPLANATION, *one_write(Path(pair.logs), "b"))))
        logs = pair.log_name
    _say("\nall of it was right; the log, and what each batch cost:")
    _say(f"bluebridge log {logs} --decode\nbluebridge log {logs} --view ntrdma")


def _show_network(pair: Pair, back_end: str) -> None:
    with interfaces(pair, back_end, DEFAULT_MTU) as both:
        said = pings.check(pair.a, ADDRESSES[1], "-c 3 -i 0.2")
        for text in said.splitlines():
            if "bytes from" in text or text == pings.ANSWERED:
                _say(text)
        rate = perftest.transfer(pair, ADDRESSES[1], TRANSFER_MIB, _say)
        _say(f"the same, {rate:.1f} MB/s")
        rate = tcp_rate(pair, ADDRESSES[0], backwards=False, seconds=2)
        _say(f"iperf3 from b to a: {rate:.1f} MiB/s")
    for name, counted in zip(pair.config.names, both.counters, strict=True):
        _say(f"guest {name}: {counted}")


def _title(text: str) -> None:
    _say(f"\n-- {text}")


def _say(text: str) -> None:
    print(printable_lines(text), flush=True)


_ACTIONS = {"demo": _demo, "perf": _perf}
