"""The time until a lab is ready, and the resources that pile up when guests come and go."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bluebridge.host_tools.campaigns.bench.leftovers import Resources, count_resources
from bluebridge.host_tools.campaigns.bench.measure import krping
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress
from bluebridge.images.source import HOME


def up_seconds(times: int, *words: str) -> list[float]:
    """Seconds from typing `bluebridge up` until a command was answered in each guest."""
    return [_up_once(words) for _ in range(times)]


def _up_once(words: tuple[str, ...]) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        env = {**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder}
        begin = time.perf_counter()
        try:
            bluebridge(env, "up", "--quiet", *words)
            # Both at once, as two terminals would.
            answers = [_start(env, "run", name, "hostname") for name in "ab"]
            for answer in answers:
                _finish(answer)
            return time.perf_counter() - begin
        finally:
            bluebridge(env, "down")


def _start(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bluebridge.host_tools.cli", *words],
        env=env,
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    if process.returncode != 0:
        raise LabError(f"bluebridge failed in the bench: {errors.strip()}")
    return output


def bluebridge(env: dict[str, str], *words: str) -> str:
    """Run a command of `bluebridge` in environment `env`; what it prints. Raises `LabError`."""
    return _finish(_start(env, *words))


def cycles(count: int, progress: Progress) -> tuple[Resources, Resources]:
    """`count` times: both guests restored anew, a krping run between them.

    All at one device server, which sees its guests vanish and come back. Returns what there was
    after the fifth time, when everything has been used once, and after the last.
    """
    with _folders() as folder, Pair(LabConfig(log=folder / "log", bus_log=False)) as pair:
        early = count_resources(folder, pair.server.pid)
        for number in range(1, count + 1):
            krping(pair, "size=64,count=10")
            for name in pair.config.names:
                pair.restart(name)
            if number == 5:
                early = count_resources(folder, pair.server.pid)
            if number % 10 == 0:
                progress(f"{number} cycles")
        return early, count_resources(folder, pair.server.pid)


def labs(count: int, progress: Progress) -> tuple[Resources, Resources]:
    """`count` times a whole lab, as a test has it: server and guests come, run krping, go.

    Returns what was there after the fifth and after the last, with no lab up.
    """
    with _folders() as folder:
        early = count_resources(folder)
        for number in range(1, count + 1):
            with Pair(LabConfig(log=folder / "log", bus_log=False)) as pair:
                krping(pair, "size=64,count=10")
            if number == 5:
                early = count_resources(folder)
            if number % 10 == 0:
                progress(f"{number} labs")
        return early, count_resources(folder)


@contextlib.contextmanager
def _folders() -> Iterator[Path]:
    """Run and log folders of our own, so that only what we leave is counted."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = name
        try:
            yield Path(name)
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before
