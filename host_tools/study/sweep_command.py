"""The command `bluebridge sweep`: measure latencies, then write table, picture and page."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bluebridge.device.mlx4.settings.config import BLUEFLAME_REGISTERS
from bluebridge.host_tools.analyzer.model import Model, load
from bluebridge.host_tools.errors import Reporter, UsageError
from bluebridge.host_tools.lab.artefacts import ensure_artefacts
from bluebridge.host_tools.processes import termination_as_exception
from bluebridge.host_tools.study import plot
from bluebridge.host_tools.study.journal import Journal
from bluebridge.host_tools.study.request import Row, SweepRequest, check_files
from bluebridge.host_tools.study.run import measure

WALL = ("PacketSize", "LatTypical", "LatBest", "LatWorst")
"""The names of the table's columns for bytes and for wall time in microseconds."""
OTHER = ("BlueFlame", "Path")

OUTPUT = Path("latencyResult.dat")


def table_text(request: SweepRequest, rows: Iterable[Row]) -> str:
    """Return the table: two lines of comment, then a block of rows for each setting.

    Blocks are two empty lines apart: gnuplot's `index 0`, `index 1`.
    """
    head = [
        f"# RDMA WRITE latency, {request.minimum} to {request.maximum} bytes in steps of "
        f"{request.step}, {request.iterations} iterations; Lat* in us of wall time, Model* in us "
        "of modelled bus time",
        "# " + ", ".join((*WALL, *OTHER, *(f"Model[{name}]" for name in request.profiles))),
    ]
    kept = sorted(rows, key=lambda row: row.size)
    blocks = [
        "\n".join(" ".join(_cells(request, row)) for row in kept if row.setting == setting)
        for setting in request.settings
    ]
    return "\n".join(head) + "\n" + "\n\n\n".join(blocks) + "\n"


def _cells(request: SweepRequest, row: Row) -> Sequence[str]:
    wall = (f"{value:.2f}" for value in (row.wall.typical, row.wall.best, row.wall.worst))
    modelled = (f"{row.modelled[name]:.3f}" for name in request.profiles)
    path = row.path.replace(" ", "-")
    return [str(row.size), *wall, row.setting, path, *modelled]


def main(options: argparse.Namespace) -> int:
    """Measure, or go on measuring, then write table and plots; returns 0.

    Raises `LabError`, for a plot that cannot be drawn before anything is measured.
    """
    request = SweepRequest.of(options)
    check_files(options)
    if options.plot:
        plot.require()  # before minutes of measuring
    models = _models(request)
    with termination_as_exception():
        ensure_artefacts(Reporter(quiet=True))
        with Journal(options.output, request) as journal:
            try:
                progress = Reporter(quiet=options.quiet)
                if journal.rows:
                    progress(f"going on: {len(journal.rows)} rows are in {journal.path}")
                measure(request, journal, models, progress, options.log)
            except BaseException:
                _tell(request, journal)
                raise
            _write(request, journal.rows, options)
            journal.remove()
    return 0


def _models(request: SweepRequest) -> dict[str, Model]:
    """The profiles, under the names they were asked for. Raises `UsageError`."""
    try:
        return {name: load(name) for name in request.profiles}
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def _tell(request: SweepRequest, journal: Journal) -> None:
    """Where a sweep that ends early can go on."""
    if kept := journal.kept():
        total = len(request.settings) * len(request.sizes)
        print(f"{kept} of {total} are kept in {journal.path}: the same command goes on from there")


def _write(request: SweepRequest, rows: Sequence[Row], options: argparse.Namespace) -> None:
    text = table_text(request, rows)
    _replace(options.output, lambda path: path.write_text(text))
    print(f"written: {options.output}")
    for target in options.plot:
        _replace(target, lambda path: plot.save_picture(request, rows, path))
        print(f"written: {target}")


def _replace(target: Path, write: Callable[[Path], object]) -> None:
    """Have `write` make a file that gets its name when it is complete."""
    draft = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        write(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command; `request` refuses wrong combinations."""
    parser.description = (
        "Measure RDMA WRITE latency for payloads of a range between two guests, with BlueFlame and "
        "without, in wall time and in modelled time from the bus log. A sweep that was stopped "
        "goes on where it was when the same command is given again."
    )
    _add_span(parser.add_argument_group("what to measure"))
    _add_results(parser.add_argument_group("results"))


def _add_span(span: argparse._ArgumentGroup) -> None:
    span.add_argument("--min", type=int, default=4, metavar="BYTES", help="default 4")
    span.add_argument("--max", type=int, default=1024, metavar="BYTES", help="default 1024")
    span.add_argument("--step", type=int, default=10, metavar="BYTES", help="default 10")
    span.add_argument(
        "--blueflame",
        default="on,off",
        metavar="on,off",
        help="settings, one after the other (default on,off); wrong-page and old-size are mistakes "
        "that --tool guest can make",
    )
    span.add_argument(
        "--tool",
        choices=("perftest", "guest"),
        default="perftest",
        help="ib_write_lat over the kernel's drivers and libmlx4 (perftest, default), or the "
        "Python driver's own program (guest)",
    )
    span.add_argument(
        "--iterations", type=int, default=200, metavar="N", help="of a payload (default 200)"
    )
    span.add_argument(
        "--blueflame-size",
        type=int,
        choices=BLUEFLAME_REGISTERS,
        default=512,
        metavar="BYTES",
        help="of a register, two buffers (default 512)",
    )
    span.add_argument(
        "--inline", type=int, metavar="BYTES", help="most to send inline (default 220)"
    )
    span.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        help="of the modelled time, a name or a file; may be repeated (default system-x, system-z)",
    )


def _add_results(results: argparse._ArgumentGroup) -> None:
    results.add_argument(
        "-o", "--output", type=Path, default=OUTPUT, metavar="FILE", help=f"default {OUTPUT}"
    )
    results.add_argument(
        "--plot",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a picture, .png or .svg; may be repeated",
    )
    results.add_argument("--force", action="store_true", help="replace files that exist")
    results.add_argument(
        "--log", type=Path, metavar="DIR", help="keep the bus logs there, a folder per setting"
    )
    results.add_argument("--quiet", action="store_true", help="no progress on standard error")
