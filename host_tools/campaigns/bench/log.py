"""The bus log: what it takes, how soon a long one is on the screen, and what it costs a message."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.host_tools.campaigns.bench import programs, rdma
from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, at_most, plain
from bluebridge.host_tools.campaigns.bench.links import guest_links
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.artefacts import ensure_artefacts
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress

EVENTS = 1_000_000
RATE_GOAL = 200_000
SCREEN_GOAL = 2.0
COST_GOAL = 10.0
SCREEN = 50
"""The lines of a screen."""
ROUNDS = 5
COST_ROUNDS = 11
_READY_SECONDS = 30.0
# The peak of its own: that of `wait4` is this process's, if it is larger (Linux `exec_mmap`).
_COMMAND = """
import re, sys
from bluebridge.host_tools import cli
status = cli.main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(status)
"""
_LOADS = (
    ("log_table", "one machine's interrupts", "--view table --kind irq --device a"),
    ("log_wr", "work requests", "--view wr"),
    ("log_jump", "event 900,000 and what follows", "--view table --event 900000"),
)  # fmt: skip


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of the bus log's section. Raises `LabError`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "log"
        progress(f"{EVENTS:,} events through the device's log calls, a reader beside")
        found = [_rate(folder, ensure_artefacts(progress).library)]
        found += _screens(folder, progress)
    return found + _cost(progress)


def _rate(folder: Path, library: Path) -> Figure:
    """Events per second of a writer whose log another process follows, all of them read."""
    words = [
        sys.executable,
        "-m",
        "bluebridge.host_tools.campaigns.bench.log_writer",
        str(folder),
        str(EVENTS),
    ]
    environment = {**os.environ, ENVIRONMENT: str(library)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        try:
            seen = _follow(folder, writer)
            assert writer.stdout is not None
            seconds = float(writer.stdout.read())
        except ValueError as error:
            raise LabError("the writer of the log failed") from error
        finally:
            writer.kill()
    if seen != EVENTS:
        raise LabError(f"the reader saw {seen:,} of {EVENTS:,} events")
    title = "events per second the log takes, all of them read by another process meanwhile"
    return at_least(plain("log_rate", title, EVENTS / seconds, "/s"), RATE_GOAL)


def _follow(folder: Path, writer: subprocess.Popen[str]) -> int:
    """Count events until the writer has ended and nothing is left."""
    deadline = time.monotonic() + _READY_SECONDS
    while not any(folder.glob("*.bin")):
        if writer.poll() is not None or time.monotonic() > deadline:
            raise LabError("the writer of the log did not begin")
        time.sleep(0.01)
    follower = Follower(LogReader(folder))
    seen = 0
    while True:
        ended = writer.poll() is not None
        new = sum(1 for _ in follower.new())
        seen += new
        if ended and not new:
            return seen


@dataclass(frozen=True)
class Run:
    """The time and the memory that a command took."""

    seconds: float
    peak_mib: float


def _screens(folder: Path, progress: Progress) -> list[Figure]:
    found = []
    peak = 0.0
    for key, title, options in _LOADS:
        progress(f"{EVENTS:,} events: {title}")
        runs = [first_screen(folder, options) for _ in range(ROUNDS)]
        seconds = statistics.median(run.seconds for run in runs)
        peak = max(peak, *(run.peak_mib for run in runs))
        text = f"a log of {EVENTS:,} events, first screen: {title}"
        found.append(at_most(plain(key, text, seconds, "s"), SCREEN_GOAL))
    progress(f"{EVENTS:,} events: traffic, which reads all of them")
    whole = _run(folder, "--view traffic")
    peak = max(peak, whole.peak_mib)
    text = f"a log of {EVENTS:,} events: response times of all traffic"
    found.append(plain("log_traffic", text, whole.seconds, "s"))
    return [*found, plain("log_memory", "peak memory of these commands", peak, "MiB")]


def first_screen(folder: Path, options: str) -> Run:
    """Run `bluebridge log` for its first `SCREEN` lines. Raises `LabError`."""
    return _run(folder, f"{options} --limit {SCREEN}")


def _run(folder: Path, options: str) -> Run:
    """Run `bluebridge log` to its end."""
    words = [sys.executable, "-c", _COMMAND, "log", str(folder), *options.split()]
    start = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True)
    seconds = time.monotonic() - start
    if done.returncode:
        raise LabError(f"bluebridge log {options} ended with status {done.returncode}")
    *_, peak = done.stderr.split()
    return Run(seconds, int(peak) / 1024)


def _cost(progress: Progress) -> list[Figure]:
    """What the log adds to a message between guests, in turn with and without."""
    contest = next(each for each in rdma.CONTESTS if each.key == "write_lat")
    command = f"{contest.words} -n {contest.count}"
    with Pair(rdma.config(), progress) as plain_pair:
        hca, _ = guest_links(plain_pair)
        with Pair(rdma.config(("a2", "b2"), log=True), progress) as logged:
            progress(f"{contest.words}: with the log and without, in turn")
            measure = {
                True: partial(programs.perftest, logged, hca, command),
                False: partial(programs.perftest, plain_pair, hca, command),
            }
            rounds = []
            for number in range(COST_ROUNDS):
                first = number % 2 == 0  # who begins changes, too
                times = {which: measure[which]() for which in (first, not first)}
                rounds.append((times[True], times[False]))
    on, off = (statistics.median(column) for column in zip(*rounds, strict=True))
    added = statistics.median(one / other - 1 for one, other in rounds)
    name = f"`{contest.words}`"
    share = plain("log_cost", f"{name}: what the bus log adds", added * 100, "%")
    return [
        plain("log_write_lat", f"{name}, bus log on", on, "us"),
        plain("log_write_lat_not", f"{name}, bus log off", off, "us"),
        at_most(share, COST_GOAL),
    ]
