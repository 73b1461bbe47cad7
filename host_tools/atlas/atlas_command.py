"""The command `bluebridge atlas`: choose, run, and print the table."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.device import cards
from bluebridge.device.layout.faults import Effect, Layer, NamedFault
from bluebridge.host_tools.atlas import outcome, stage
from bluebridge.host_tools.atlas.cell import Cell
from bluebridge.host_tools.atlas.outcome import Row
from bluebridge.host_tools.atlas.programs import BY_NAME, FAULTS, PROGRAMS, Program
from bluebridge.host_tools.errors import Progress, Reporter, UsageError
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.processes import termination_as_exception

MOST_TIMES, MOST_PAIRS = 100, 16


def main(options: argparse.Namespace) -> int:
    """Run the chosen faults; return 0 if the lab was healthy after each. Raises `LabError`."""
    if options.list:
        print("\n".join(f"{program.name:18}{program.what}" for program in PROGRAMS))
        return 0
    pairs = chosen(options.only, options.programs, every=options.all, card=options.card)
    for option, value, most in (
        ("--times", options.times, MOST_TIMES),
        ("--pairs", options.pairs, MOST_PAIRS),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{option} {value}", f"give 1 to {most}")
    progress = Reporter(quiet=options.quiet)
    rows: list[Row] = []
    try:
        with termination_as_exception():
            for row in run(pairs, options, progress):
                rows.append(row)
                if options.json:
                    print(json.dumps(dataclasses.asdict(row)), flush=True)
    finally:  # as far as the run came
        order = [(program.name, fault.name) for program, fault in pairs]
        rows.sort(key=lambda row: order.index((row.program, row.fault)))  # several run at once
        if rows and not options.json:
            print("\n".join(outcome.table(rows)))
    return int(any(row.recovered == stage.NO for row in rows))


def chosen(
    only: str | None, names: str | None, *, every: bool, card: str
) -> Sequence[tuple[Program, NamedFault]]:
    """Return programs, each with a fault that it is run under; raises `UsageError`.

    Without a choice each fault is run under the programs that show most of it.
    """
    faults, programs = chosen_faults(only, card), chosen_programs(names)
    every = every or only is not None or names is not None
    return [
        (program, fault)
        for program in programs
        for fault in faults
        if (program.meets(fault) if every else program.concerned(fault))
    ]


def chosen_faults(pattern: str | None, card: str) -> Sequence[NamedFault]:
    """Return the faults of a card whose names match one of the patterns, which commas part.

    Raises `UsageError` when none does.
    """
    adapter = [fault for fault in FAULTS[card] if fault.layer is not Layer.BRIDGE]
    patterns = (pattern or "*").split(",")
    found = [
        fault
        for fault in adapter
        if any(fnmatch.fnmatch(fault.name, each.strip()) for each in patterns)
    ]
    if not found:
        mend = "`bluebridge fault list` shows all"
        title = cards.CARDS[card].title
        raise UsageError(f"no fault of a {title} is called {pattern!r}", mend)
    return found


def chosen_programs(names: str | None) -> Sequence[Program]:
    """Return the programs of a list of names; raises `UsageError` for an unknown one."""
    if names is None:
        return PROGRAMS
    for name in names.split(","):
        if name not in BY_NAME:
            raise UsageError(f"there is no program {name!r}", f"choose from {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in dict.fromkeys(names.split(","))]


def run(
    chosen_pairs: Sequence[tuple[Program, NamedFault]],
    options: argparse.Namespace,
    progress: Reporter,
) -> Iterable[Row]:
    """Yield the row of each fault and program, `options.times` times. Raises `LabError`.

    Several programs run `options.pairs` at once, each on a pair of its own; what a fault leaves
    behind meets no other program.
    """
    faults: dict[str, list[str]] = {}
    for program, fault in chosen_pairs:
        faults.setdefault(program.name, []).append(fault.name)
    if len(faults) == 1:
        # The peer's CM takes the first connection behind an adapter's failure for a stale one.
        ordered = sorted(chosen_pairs, key=lambda pair: pair[1].effect is Effect.FATAL)
        cells = [pair for pair in ordered for _ in range(options.times)]
        yield from _run_here(cells, options.card, options.log, progress)
        return
    log = folders.log_folder(options.log)
    with contextlib.ExitStack() as owned:
        owned.callback(os.close, folders.keep_logs(log))
        words = ["--card", options.card, "--times", str(options.times)]
        yield from stage.run(faults, options.pairs, words, log)


def _run_here(
    cells: Sequence[tuple[Program, NamedFault]], card: str, log: Path | None, progress: Progress
) -> Iterable[Row]:
    """Run the cells of one program on a pair of this process. Raises `LabError`."""
    program = cells[0][0]
    with stage.opened([program], card, log, progress) as opened:
        for number, (_, fault) in enumerate(cells, start=1):
            if number == 1 and not program.loads:
                Cell(opened, program, fault).measure()
            row = Cell(opened, program, fault).run()
            progress(f"{number}/{len(cells)} {fault.name}, {program.name}: {row.outcome}")
            yield row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Start pairs of guests with the kernel's drivers and run stock programs between them, "
        "with one fault of `bluebridge fault list` in guest a at a time. The table says of each "
        "how much it took, what the program saw, how it ended, what the kernel said, "
        "and whether all was well again after the fault was cleared. A guest that crashed or hangs "
        "is started anew. Exit status 0 if the lab was healthy after each fault."
    )
    parser.add_argument(
        "--only", metavar="PATTERN,...", help="faults whose name matches, such as 'wc-*,hung-wr'"
    )
    parser.add_argument(
        "--programs", metavar="NAME,...", help="which programs (default all): `--list` shows them"
    )
    parser.add_argument(
        "--card", choices=tuple(cards.CARDS), default=cards.DEFAULT,
        help="the adapters of both guests (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--all", action="store_true",
        help="every fault under every program, hours; without it, unless --only or "
        "--programs chooses, each fault runs under the programs that show most of it",
    )  # fmt: skip
    parser.add_argument(
        "--times", type=int, default=1, metavar="N", help="each fault so often (default 1)"
    )
    parser.add_argument(
        "--pairs", type=int, default=2, metavar="N",
        help="so many programs at once, each on a pair of its own (default 2)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="show the programs, and start nothing")
    parser.add_argument("--json", action="store_true", help="a JSON object for each row")
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for bus log and consoles")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
