"""`bluebridge krping`: runs krping on both sides and gives one verdict."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bluebridge.guest.protocols.krping.option_string import (
    OptionError,
    Options,
    Test,
    next_address,
    parse,
)
from bluebridge.guest.protocols.krping.progress import Stats
from bluebridge.guest.providers import NTRDMA
from bluebridge.host_tools.errors import LabError, Reporter, UsageError, understood
from bluebridge.host_tools.krping.last_iteration import last_iteration, server_address
from bluebridge.host_tools.lab import lab_options, ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.printable import printable, printable_lines

_PROGRAM = ("python3", "-m", "bluebridge.guest.protocols.krping")
_LISTENING = r"rdma_listen[^\r\n]*\r?\n"
_START_SECONDS = 120.0
_SECONDS_PER_ITERATION = 0.5
_PARTING_SECONDS = 10.0
_FOREVER = 10 * 365 * 86400.0


@dataclass(frozen=True)
class KrpingRequest:
    """Two checked krping strings and the addresses that follow from them."""

    server: str
    client: str
    server_ip: str
    client_ip: str
    count: int
    """The number of iterations of the client; 0 means until it is stopped."""
    test: Test
    back_end: str = ""
    """The back end of NTRDMA; empty for HCAs."""

    @classmethod
    def parse(cls, server: str, client: str, back_end: str = "") -> KrpingRequest:
        """Check both strings before anything boots; raises `UsageError` in one line."""
        listening, asking = _options(server, "server"), _options(client, "client")
        if not listening.server:
            raise UsageError("the first krping string must contain `server`")
        if asking.server:
            raise UsageError("the second krping string must contain `client`")
        if listening.port != asking.port:
            raise UsageError(
                f"the server listens on port {listening.port}, the client asks for {asking.port}",
                "give both the same port",
            )
        _same_options(listening, asking)
        address = server_address(listening.addr, asking.addr)
        if asking.test is Test.PING:
            server, client = _validating(server), _validating(client)
        return cls(
            server, client, address, next_address(address), asking.count, asking.test, back_end
        )

    def command(self, server: bool) -> str:
        """Return the shell line that runs the server's side, or the client's."""
        ip, words = (self.server_ip, self.server) if server else (self.client_ip, self.client)
        provider: list[str] = []
        if self.back_end:
            back_end = ntrdma.word(self.back_end, serves=server)
            provider = ["--provider", NTRDMA, "--backend", back_end]
        return shlex.join([*_PROGRAM, *provider, "--ip", ip, "--json", words])


def _options(text: str, side: str) -> Options:
    try:
        return parse(text)
    except OptionError as error:
        raise UsageError(f"{side} string: {error}") from error


def _validating(text: str) -> str:
    """The string with `validate`: the exit status promises it, and it costs a comparison."""
    return text if parse(text).validate else f"{text},validate"


def _same_options(server: Options, client: Options) -> None:
    """Both sides must agree on what moves; a mismatch would only show as a protection error."""
    names = ("size", "mem_mode", "server_inv", "read_inv", "duplex", "test")
    for name in names[: -1 if client.test is Test.FR else None]:
        if getattr(server, name) != getattr(client, name):
            option = {
                "size": f"size={client.size}",
                "mem_mode": f"mem_mode={client.mem_mode.value}",
            }
            raise UsageError(
                f"server and client differ in {option.get(name, name)}",
                "give both the same options",
            )


@dataclass(frozen=True)
class Side:
    """The status and result of one side's krping program, which has ended."""

    status: int
    result: Mapping[str, Any]
    """The JSON object that the program prints."""
    output: str

    @property
    def line(self) -> str:
        """Return the side's statistics in krping's own format."""
        numbers = {k: int(v) for k, v in self.result["stats"].items() if k != "name"}
        return Stats(**numbers).line(str(self.result["stats"]["name"]))

    @classmethod
    def read(cls, where: str, status: int, output: str) -> Side:
        """Read the JSON object at the end of the output; raises `LabError` if there is none.

        Messages begin with `where`, such as `guest a`.
        """
        lines = [line for line in output.splitlines() if line.strip()]
        try:
            result = json.loads(_last_line(output))
            if not isinstance(result, dict) or "stats" not in result:
                raise ValueError
        except (ValueError, RecursionError):
            said = f"said: {_last_line(output)}"
            raise LabError(
                f"{where}: krping ended with status {status} and {said}", "", output
            ) from None
        if not result["stats"]:  # it never came to run
            raise LabError(f"{where}: krping: {result.get('error')}", "", output)
        side = cls(status, result, "\n".join(lines[:-1]))
        with understood(f"{where}: krping"):
            side.check()
        return side

    def check(self) -> None:
        """Look at each field of the result once; raises `ValueError`, `KeyError` or `TypeError`."""
        times = self.result["us_per_iteration"] or {}
        numbers = [self.result[name] for name in ("ok", "iterations", "validated")]
        numbers += [times[name] for name in ("min", "p50", "p99") if times]
        if not all(isinstance(number, int | float) for number in numbers) or not self.line:
            raise ValueError("a figure is no number")


@dataclass(frozen=True)
class Outcome:
    """The results of the two sides of one run."""

    server: Side
    client: Side
    request: KrpingRequest
    log: Path

    @property
    def complete(self) -> bool:
        """Whether the client made all requested iterations; an endless run must have made some."""
        made = int(self.client.result["iterations"])
        return made == self.request.count if self.request.count else made > 0

    @property
    def ok(self) -> bool:
        """Whether both sides ended well, with all iterations done and, in a ping, validated."""
        made = self.client.result["iterations"]
        return self.complete and all(
            side.status == 0
            and bool(side.result["ok"])
            and (self.request.test is not Test.PING or side.result["validated"] == made)
            for side in (self.server, self.client)
        )

    def failure(self) -> str:
        """Return in one line why the run failed."""
        for name, side in (("client in b", self.client), ("server in a", self.server)):
            if side.status != 0 and (why := side.result.get("error")):
                return f"krping {name}: {why}"
        made = self.client.result["iterations"]
        if not self.complete:
            return f"krping ended after {made} of {self.request.count or 'endless'} iterations"
        counts = f"{self.client.result['validated']} and {self.server.result['validated']}"
        return f"client and server validated {counts} of {made} iterations"

    def report(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {
            "ok": self.ok,
            "iterations": self.client.result["iterations"],
            "validated": self.client.result["validated"],
            "us_per_iteration": self.client.result["us_per_iteration"],
            "server": self.server.result["stats"],
            "client": self.client.result["stats"],
            "log": str(self.log),
        }


def run(pair: Pair, request: KrpingRequest, timeout: float | None = None) -> Outcome:
    """Run krping between the sides of a pair that is up.

    Raises `LabError` when a guest, the server or a program fails without a result.
    """
    most = _START_SECONDS + _SECONDS_PER_ITERATION * request.count if request.count else _FOREVER
    limit = timeout or most
    a, b = pair.config.names
    serving, asking = pair.foreground(a), pair.foreground(b)
    sides: dict[str, Side] = {}
    server_ended = threading.Event()

    def finish(side: str) -> None:
        status, output = pair.foreground(side).finish(limit)
        sides[side] = Side.read(pair.config.called(side), status, output)

    def server() -> None:
        try:
            finish(a)
        finally:
            server_ended.set()

    def client() -> None:
        try:
            finish(b)
        except KeyboardInterrupt:  # the way to end an endless run: it then reports what it did
            asking.interrupt()
            finish(b)
        # A client that never got through leaves the server waiting for one.
        if sides[b].status != 0 and not server_ended.wait(_PARTING_SECONDS):
            serving.interrupt()

    serving.begin(request.command(server=True))
    status, output = serving.finish(_START_SECONDS, progress=_LISTENING)
    if status >= 0:
        where, said = pair.config.called(a), _last_line(output)
        raise LabError(f"{where}: the krping server did not listen: {said}", "", output)
    asking.begin(request.command(server=False))
    pair.together(server, client)
    return Outcome(sides[a], sides[b], request, pair.logs)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing")


def main(options: argparse.Namespace) -> int:
    """Run krping; return 0 only if every iteration was validated on both sides."""
    progress = Reporter(quiet=options.quiet)
    back_end = options.backend if options.provider == NTRDMA else ""
    request = KrpingRequest.parse(options.server, options.client, back_end)
    config = LabConfig(**lab_options.fields(options), options=lab_options.cards_of(options))
    if options.provider == NTRDMA:
        if options.hosts and options.backend == ntrdma.TCP:
            raise UsageError("krping has NTRDMA over TCP between guests only", "leave out --host")
        config = ntrdma.config(config, options.backend)
    pair = Pair(config, progress)
    try:
        with pair:
            progress(f"krping: server {request.server_ip} in a, client {request.client_ip} in b")
            outcome = run(pair, request, options.timeout)
            progress("krping ended, shutting down")
    except LabError as error:
        if options.json:
            print(json.dumps({"ok": False, "error": str(error), "log": pair.log_name}))
        raise
    if options.json:
        print(json.dumps(outcome.report()))
    if not (options.json and options.quiet):
        for line in lines(outcome):
            print(printable_lines(line), file=sys.stderr if options.json else sys.stdout)
    if not outcome.ok:
        print(f"bluebridge: {printable(outcome.failure())}", file=sys.stderr)
    return 0 if outcome.ok else 1


def lines(outcome: Outcome) -> Iterator[str]:
    """Yield both sides' log and statistics, the verdict, and the last iteration on the bus."""
    for name, side in (("server", outcome.server), ("client", outcome.client)):
        yield from (f"-- {name}", side.output)
    report = outcome.report()
    if not outcome.request.back_end:
        yield "-- the last iteration on the bus"
        yield from last_iteration(outcome.log)
    yield "-- statistics: name, bytes and messages of SEND, RECV, RDMA WRITE, RDMA READ"
    yield from ("server:", outcome.server.line, "client:", outcome.client.line)
    yield f"{report['validated']} of {report['iterations']} iterations validated"
    if (times := report["us_per_iteration"]) is not None:
        yield (
            f"microseconds per iteration: min {times['min']}, median {times['p50']}, "
            f"p99 {times['p99']}"
        )
    yield f"bus log and transcripts: {outcome.log}"
