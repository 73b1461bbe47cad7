"""`python -m tests.campaigns.blueflame_study FOLDER`: the BlueFlame study again.

All its results go into one folder. What is there already stays; a run that was stopped goes on
where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer.analysis import transfers
from bluebridge.host_tools.errors import Reporter

_LOGS = "logs"
_SEND = 28
"""Payload of the sends that are shown one by one."""
_ROWS = 40
"""The rows of the analyzer's table."""


@dataclass(frozen=True)
class Measurement:
    """A sweep: `name` of its files, the words of its command line, the study's table of it."""

    name: str
    words: str
    table: str = ""


SWEEPS = (
    Measurement("latencyResult", "", "4.1"),
    # Today's libmlx4 has the size rule mended; without inline data beyond 192 bytes BlueFlame ends
    # where it did.
    Measurement("system-x", "--inline 192 --step 20 --profile system-x", "3.1"),
    # The study's first attempt ended at entries of 128 bytes, one store block.
    Measurement(
        "first-attempt",
        "--tool guest --blueflame wrong-page,off --blueflame-size 256 --max 124 --step 4"
        " --profile system-z",
        "4.3",
    ),
)
# Section 3.3: `<` for `<=` ends BlueFlame at 192 bytes, 16 too early.
_SIZE_RULE = Measurement(
    "size-rule",
    "--tool guest --blueflame on,old-size --min 180 --max 220 --step 4 --profile system-x",
)
_SENDS = Measurement(
    "sends",
    f"--tool guest --blueflame on,off,wrong-page --min {_SEND} --max {_SEND} --iterations 5"
    " --profile system-z",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing; returns the first status that is not 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.blueflame_study", description=__doc__
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="made if it is missing")
    folder: Path = parser.parse_args(argv).folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"bluebridge: cannot make {folder}: {error.strerror}", file=sys.stderr)
        return 1
    progress = Reporter()
    for name, step in _steps(folder):
        if name.exists():
            progress(f"{name} is there")
            continue
        progress(str(name))
        if status := step():
            return status
    print(f"all of it is in {folder}")
    return 0


def _steps(folder: Path) -> list[tuple[Path, Callable[[], int]]]:
    """Each file with what makes it, in order."""
    steps: list[tuple[Path, Callable[[], int]]] = []
    for each in (*SWEEPS, _SIZE_RULE, _SENDS):
        output = folder / f"{each.name}.dat"
        steps.append((output, partial(_sweep, folder, each)))
        if each.table:
            target = folder / f"table-{each.table}.txt"
            logs = folder / _LOGS / each.name
            steps.append((target, partial(_table, each.table, logs, target)))
    for setting in ("on", "off", "wrong-page"):
        log = folder / _LOGS / _SENDS.name / setting
        page = folder / f"sends-{setting}.html"
        shown, analyzer = (folder / f"{name}-{setting}.txt" for name in ("sends", "analyzer"))
        html = ["web", str(log), "--profile", "system-z", "--kind", "work request"]
        html += ["--save", str(page)]
        wr = ["log", str(log), "--view", "wr", "--tree", "--profile", "system-z"]
        steps.append((page, partial(cli.main, html)))
        steps.append((shown, partial(_said, wr, shown)))
        steps.append((analyzer, partial(_analyzer, log, analyzer)))
    return steps


def _sweep(folder: Path, each: Measurement) -> int:
    output = folder / f"{each.name}.dat"
    words = ["sweep", *each.words.split(), "-o", str(output)]
    words += ["--log", str(folder / _LOGS / each.name)]
    for suffix in (".svg", ".png") if each.table else ():
        # Of a run that ended between the table and its pictures nothing is there twice.
        words += ["--plot", str(output.with_suffix(suffix))]
    return cli.main([*words, "--force"])


def _table(name: str, logs: Path, target: Path) -> int:
    """One of the study's tables, from a sweep's logs: one of each time that it went on."""
    folders = sorted(str(path) for path in logs.iterdir() if path.is_dir())
    return _said(["model", "--table", name, *folders], target)


def _analyzer(log: Path, target: Path) -> int:
    """The analyzer's table from the first send on: bring-up fills the pages before it."""
    words = ["log", str(log), "--view", "table", "--kind", "mmio,dma", "--limit", str(_ROWS)]
    for first in islice(transfers(log), 1):
        words += ["--event", str(first.transactions[0].number)]
    return _said(words, target)


def _said(words: Sequence[str], target: Path) -> int:
    """Run a command with its output in a file, which appears when it is complete."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("w") as file, contextlib.redirect_stdout(file):
            status = cli.main(list(words))
        if not status:
            draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
