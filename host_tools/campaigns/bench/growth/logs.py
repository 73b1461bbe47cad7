"""How soon a log is on the screen, and in how much memory, at several lengths."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.host_tools.campaigns.bench import log
from bluebridge.host_tools.campaigns.bench.figures import Figure
from bluebridge.host_tools.campaigns.bench.growth.series import series
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.progress import Progress

EVENTS = (10**5, 10**6, 10**7)
_ROUNDS = 5
_SCREENS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("log_first", "`bluebridge log DIR`", lambda _: ""),
    ("log_wr", "`--view wr`", lambda _: "--view wr"),
    ("log_event", "`--event N`, nine tenths into it", lambda count: f"--event {count * 9 // 10}"),
    ("log_rare", "`--kind irq`, of which the last few events are", lambda _: "--kind irq"),
)


def figures(library: Path, progress: Progress) -> list[Figure]:
    """Everything of this module. Raises `LabError`."""
    seconds: dict[str, dict[int, float]] = {key: {} for key, _, _ in _SCREENS}
    memory: dict[int, float] = {}
    for count in EVENTS:
        progress(f"a log of {count:,} events")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "log"
            _write(folder, count, library)
            for key, _, options in _SCREENS:
                runs = [log.first_screen(folder, options(count)) for _ in range(_ROUNDS)]
                seconds[key][count] = min(run.seconds for run in runs)
                memory[count] = max(memory.get(count, 0), *(run.peak_mib for run in runs))
    found = [
        figure
        for key, title, _ in _SCREENS
        for figure in series(
            key, f"the first {log.SCREEN} lines of a log of as many events: {title}", "s",
            seconds[key],
        )
    ]  # fmt: skip
    title = "peak memory of these commands"
    return [*found, *series("log_memory", title, "MiB", memory)]


def _write(folder: Path, count: int, library: Path) -> None:
    words = [sys.executable, "-m", "bluebridge.host_tools.campaigns.bench.log_writer"]
    environment = {**os.environ, ENVIRONMENT: str(library)}
    done = subprocess.run(
        [*words, str(folder), str(count)], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise LabError("the writer of the log failed", transcript=done.stderr)
