"""Programs of the conformance run, pairs they run on, and the verdict over their output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bluebridge.host_tools.programs.running import Ended
from tests.campaigns.conformance.session import INFINIBAND, ROCE, Session, Setup

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_HALF = 0.5


@dataclass(frozen=True)
class Verdict:
    """One line of the table; `part` names a test within a program that reports many."""

    status: str
    reason: str = ""
    part: str = ""


Judge = Callable[[Ended], Sequence[Verdict]]
Steps = Callable[[Session], Sequence[Verdict]]


@dataclass(frozen=True)
class Program:
    """One entry of a suite.

    Commands are shell lines in which `{server}`, `{client}` and `{server6}` stand for the guests'
    addresses, `{netdev}` for the network device, and `{g}` and `{x}` for the options `-g N` and
    `-x N` that choose a GID; on InfiniBand those are empty.
    """

    suite: str
    name: str
    client: str = ""
    """Runs in guest b once the server is ready; its output is judged."""
    server: str = ""
    """Runs in guest a; empty when the client needs no peer."""
    ready: str = ""
    """Shell condition in guest a that says the server is ready."""
    lasting: bool = False
    """The server would run for ever: it is ended after the client."""
    expect: str = ""
    """Regular expression that a passing client prints."""
    unsupported: str = ""
    """Regular expression of the line by which it says that the device lacks something."""
    repeat: str = ""
    """Regular expression of what either side prints when a run says nothing about the device: it is
    run again, twice at most."""
    judge: Judge | None = None
    """Verdicts over the client's end, instead of status and `expect`."""
    limit: float = 60.0
    """The time limit in seconds."""
    setups: tuple[Setup, ...] = (ROCE, INFINIBAND)
    short: bool = False
    """Whether `make test-all` runs it too, under the setups of `QUICK`."""
    after: str = ""
    """Runs in both guests when the program has ended: puts back what it changed."""
    files: tuple[tuple[str, Path | bytes], ...] = field(default=(), repr=False)
    """Files that guest b gets first: path, and the file here or its content."""
    steps: Steps | None = field(default=None, repr=False)
    """A function that works with both guests in place of commands.

    Raises `LabError` for a failure.
    """

    @property
    def key(self) -> str:
        """The program's name in results, without the setup."""
        return f"{self.suite}/{self.name}"


def verdict(program: Program, client: Ended) -> Sequence[Verdict]:
    """Judges a program by the end of its client."""
    if program.unsupported and (found := re.search(program.unsupported, client.output)):
        return [Verdict(SKIPPED, _line_of(client.output, found))]
    if program.judge is not None:
        return program.judge(client)
    if client.status is None:
        return [Verdict(FAILED, f"no end after {program.limit:.0f} s: {client.last_words}")]
    if client.status != 0:
        return [Verdict(FAILED, f"status {client.status}: {client.last_words}")]
    if program.expect and not re.search(program.expect, client.output, re.MULTILINE):
        return [Verdict(FAILED, f"printed no /{program.expect}/: {client.last_words}")]
    return [Verdict(PASSED)]


def every_second_has_bytes(ended: Ended) -> Sequence[Verdict]:
    """iperf3's report: it came to its end and no second was empty.

    The last interval is what is left of a second, and may be too short for anything to come.
    """
    try:
        report = json.loads(ended.output)
        sums = [interval["sum"] for interval in report["intervals"]]
        moved = [each["bytes"] for each in sums if each["seconds"] > _HALF]
    except (ValueError, KeyError, TypeError):
        return [Verdict(FAILED, f"no report: {ended.last_words}")]
    if "error" in report or not moved:
        return [Verdict(FAILED, str(report.get("error", "it measured nothing")))]
    if 0 in moved:
        return [Verdict(FAILED, f"nothing moved in interval {moved.index(0)} of {len(moved)}")]
    rate = report["end"]["sum_received"]["bits_per_second"] / 1e6
    return [Verdict(PASSED, f"{rate:.0f} Mbit/s, slowest second {min(moved) * 8 / 1e6:.0f} Mbit")]


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    return text[start : end if end >= 0 else None].strip()
