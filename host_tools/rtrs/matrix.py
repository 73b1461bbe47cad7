"""`bluebridge rtrs matrix`: tries kernel and Python as client and as server, under cuts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bluebridge.guest.providers import HCA
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.progress import Progress, Reporter
from bluebridge.host_tools.rtrs.cuts import Cut
from bluebridge.host_tools.rtrs.pairing import Outcome, run
from bluebridge.host_tools.rtrs.session import session

PAIRINGS = (("kernel", "kernel"), ("python", "kernel"), ("kernel", "python"), ("python", "python"))
HEADER = (
    "| client | server | fio | cuts | paths given up | I/O errors | verify errors | fail-overs "
    "| reconnects | read | written |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(options: argparse.Namespace) -> int:
    """Run the pairings and print the table; 0 if all ran without an error."""
    progress = Reporter(quiet=options.quiet)
    rows: list[str] = []
    right = True
    for sides in options.sides or _pairings(options):
        progress(f"client {sides[0]}, server {sides[1]}: {options.minutes:g} min")
        log = options.log / "-".join(sides) if options.log else None
        try:
            outcome = one(sides, options, log, progress)
        except LabError as error:
            rows.append(_failed(_named(sides, options), error))
            right = False
            continue
        rows.append(row(_named(sides, options), outcome))
        right = right and outcome.found.ok
    print("\n".join([HEADER, *rows]))
    return 0 if right else 1


def _pairings(options: argparse.Namespace) -> Sequence[tuple[str, str]]:
    return PAIRINGS if options.provider == HCA else PAIRINGS[-1:]


def one(
    sides: tuple[str, str], options: argparse.Namespace, log: Path | None, progress: Progress
) -> Outcome:
    """Run one pairing on a pair of its own. Raises `LabError`."""
    with session(sides, options, log, progress) as mapped:
        return run(mapped, options.minutes * 60, options.period, Cut(options.cut), progress)


def row(sides: tuple[str, str], outcome: Outcome) -> str:
    """Return a line of the table."""
    found = outcome.found
    cells = (
        *sides,
        f"{outcome.seconds:.0f} s",
        str(outcome.cuts),
        str(outcome.given_up),
        str(found.io_errors),
        str(found.verify_errors),
        str(outcome.failovers),
        str(outcome.reconnects),
        f"{found.read_rate:.1f} MiB/s",
        f"{found.write_rate:.1f} MiB/s",
    )
    return f"| {' | '.join(cells)} |"


def _named(sides: tuple[str, str], options: argparse.Namespace) -> tuple[str, str]:
    """Of a row; with what is not an HCA."""
    if options.provider == HCA:
        return sides
    client, server = (f"{side}, {options.provider} {options.backend}" for side in sides)
    return client, server


def _failed(sides: tuple[str, str], error: LabError) -> str:
    return f"| {sides[0]} | {sides[1]} | failed: {error.what} |" + " |" * 8
