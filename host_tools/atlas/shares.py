"""The atlas in shares: each program has a process and a pair of its own, some at a time."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from bluebridge.host_tools import processes
from bluebridge.host_tools.atlas.outcome import Row
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.progress import Progress

_GRACE_SECONDS = 30.0
"""The seconds that a share gets to end its guests."""


def run(
    shares: Mapping[str, Sequence[str]],
    at_once: int,
    times: int,
    end: float | None,
    log: Path,
    progress: Progress,
) -> Iterator[Row]:
    """Yield the rows of `shares`, the names of faults by that of a program, in any order.

    Behind `end`, on the monotonic clock, nothing more begins. Raises `LabError` when a share
    could not go on, after all others have ended.
    """
    waiting = dict(shares)
    failed: list[str] = []
    with contextlib.ExitStack() as owned:
        running: dict[str, subprocess.Popen[bytes]] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                name = next(iter(waiting))
                faults = waiting.pop(name)
                if end is not None and time.monotonic() > end:
                    progress(f"{name}: the minutes are over, {len(faults)} cells are left")
                    continue
                running[name] = _start(name, faults, times, end, log / name)
                owned.callback(processes.stop, running[name], _GRACE_SECONDS)
            for name in _ready(running):
                line = _output(running[name]).readline()
                if line:
                    yield Row(**json.loads(line))
                elif running.pop(name).wait() not in (0, 1):
                    failed.append(name)
    if failed:
        raise LabError(f"the atlas of {', '.join(failed)} did not end", "its reason is above")


def _ready(running: Mapping[str, subprocess.Popen[bytes]]) -> list[str]:
    """Wait until at least one share has printed something or ended; return the names of those."""
    # A line that waits in a buffer is told with the next one, or at the end.
    by_file = {_output(share).fileno(): name for name, share in running.items()}
    return [by_file[each] for each in select.select([*by_file], [], [])[0]] if by_file else []


def _output(share: subprocess.Popen[bytes]) -> IO[bytes]:
    assert share.stdout is not None
    return share.stdout


def _start(
    name: str, faults: Sequence[str], times: int, end: float | None, log: Path
) -> subprocess.Popen[bytes]:
    words = ["--programs", name, "--only", ",".join(faults), "--times", str(times), "--json"]
    words += ["--log", str(log)]
    if end is not None:
        words += ["--minutes", str(max(end - time.monotonic(), 1.0) / 60)]
    command = [sys.executable, "-m", "bluebridge.host_tools.cli", "atlas", *words]
    return processes.spawn(command, stdout=subprocess.PIPE, stderr=sys.stderr.buffer)
