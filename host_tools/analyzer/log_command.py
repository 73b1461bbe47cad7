"""`bluebridge log DIR`: show a bus log."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from gzip import GzipFile
from importlib import import_module
from pathlib import Path

from bluebridge.device.buslog.marks import find_mark
from bluebridge.device.buslog.reader import Filter, LogError, LogReader
from bluebridge.host_tools.analyzer import output
from bluebridge.host_tools.analyzer.comparison import compare
from bluebridge.host_tools.analyzer.event_lines import KINDS
from bluebridge.host_tools.analyzer.pcap import export
from bluebridge.host_tools.analyzer.views import (
    activities,
    bridges,
    ntrdma,
    traffic,
    transactions,
    work_requests,
)
from bluebridge.host_tools.analyzer.views.view import Options

_MODULES = (transactions, work_requests, activities, bridges, traffic, ntrdma)
VIEWS = {view.name: view for view in (transactions.EVENTS, *(each.VIEW for each in _MODULES))}
"""The views by their names for `--view`; the first one is the default."""
DEFAULT = transactions.EVENTS.name
TABLE = transactions.VIEW.name
GZIP_LEVEL = 4
"""Compression level that takes half of the default's time; files are a few percent larger."""
_TREES = " or ".join(view.name for view in VIEWS.values() if view.tree)
_FAILED = " or ".join(view.name for view in VIEWS.values() if view.failed)
_POLLING = " or ".join(view.name for view in VIEWS.values() if view.polling)
_MODELLED = " or ".join(view.name for view in VIEWS.values() if view.modelled)

_FILES = ("dissector", "pcap", "perfetto")
_CLASHES = (
    (
        "pcap",
        ("bar", "kind", "decode", "failed", "no_polling"),
        "chooses events to print, --pcap writes packets: drop one",
    ),
    ("pcap", ("limit",), "bounds rows, --pcap writes packets: use --from, --to or --event"),
    ("pcap", ("profile", "format"), "is for what is printed, --pcap writes packets: drop one"),
    ("perfetto", ("format",), "chooses how lines are printed, --perfetto draws: drop one"),
    (
        "perfetto",
        ("kind", "bar", "decode", "tree", "failed", "no_polling"),
        "chooses what is printed, --perfetto draws all: drop one",
    ),
)
"""Files that are written, options that do not go with them, and why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add = parser.add_argument
    add(
        "folder", nargs="?", metavar="DIR", type=Path,
        help="folder of a run or of a bus log (default: of the newest one)",
    )  # fmt: skip
    add(
        "--view", choices=tuple(VIEWS), default=DEFAULT,
        help=", ".join(
            f"{view.summary} ({view.name}{', default' if view.name == DEFAULT else ''})"
            for view in VIEWS.values()
        ),
    )  # fmt: skip
    add(
        "--tree", action="store_true",
        help=f"with --view {_TREES}: all parts of each (without --view: of the table)",
    )  # fmt: skip
    add(
        "--profile", metavar="P",
        help=f"with --view {_MODELLED}, --perfetto: modelled times as well, by the profile of this "
        "name or in this file",
    )  # fmt: skip
    add("--bar", type=int, choices=range(6), help="only accesses of this BAR")
    add("--kind", help=f"comma-separated: {', '.join(KINDS)}")
    add(
        "--failed", action="store_true",
        help=f"with --view {_FAILED}: only commands, completions and activities with another "
        "status than OK, and what faults did",
    )  # fmt: skip
    add(
        "--no-polling", action="store_true",
        help=f"with --view {_POLLING}: without the commands that a driver repeats all the time "
        "(DUMP_ETH_STATS and such), unless they failed",
    )  # fmt: skip
    add("--device", help="only this device, such as a, b.1, a.ntb")
    add("--from", dest="since", type=float, metavar="T", help="seconds")
    add("--to", dest="until", type=float, metavar="T", help="seconds")
    add("--event", type=_number, metavar="N", help="from event number N on")
    add(
        "--from-mark", "--mark", dest="from_mark", metavar="TEXT",
        help="from the last mark with TEXT on (`bluebridge mark`)",
    )  # fmt: skip
    add("--to-mark", metavar="TEXT", help="up to the next mark with TEXT, or the last one")
    add(
        "--diff", nargs=2, type=Path, metavar=("A", "B"),
        help="instead: where two logs differ first, times and addresses aside; status 1 if they do",
    )  # fmt: skip
    add("--limit", type=_number, metavar="N", help="at most N rows, or events of a timeline")
    add("--format", choices=("table", "jsonl"), default="table", help="jsonl: a JSON object a line")
    add("--json", dest="format", action="store_const", const="jsonl", help="same as --format jsonl")
    add("--decode", action="store_true", help="say what each transfer was")
    add(
        "--perfetto", type=Path, metavar="FILE",
        help="write a timeline of both machines for ui.perfetto.dev; a FILE in .gz is compressed",
    )  # fmt: skip
    add(
        "--pcap", type=Path, metavar="FILE",
        help="write what crossed the wire as a capture for tshark (- for standard output)",
    )  # fmt: skip
    add("--roce", choices=sorted(export.ROCE), help="with --pcap: as this version, whatever it was")
    add(
        "--cut", action="store_true",
        help="with --pcap: end packets where the log's payload ends instead of adding zeros",
    )  # fmt: skip
    add(
        "--tlp", action="store_true",
        help="with --pcap: each function's bus, too, as PCIe packets (without a wire, always)",
    )  # fmt: skip
    add("--force", action="store_true", help="replace the file that is written")
    add(
        "--dissector", type=Path, metavar="FILE",
        help="write the Wireshark dissector of PCIe packets (.lua), and nothing else",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Print the log; return the exit status, 1 if it was cut short or differs with --diff."""
    try:
        if arguments.diff is not None:
            alike, lines = compare(*map(LogReader, arguments.diff))
            _print(lines)
            return 0 if alike else 1
        _check_files(arguments)
        if arguments.dissector is not None:
            export.write_dissector(arguments.dissector, replace=arguments.force)
            return 0
        _check(arguments)
        options = _options(arguments)
        reader = _reader(arguments)
        reader.check_event(arguments.event or 0)
        options = replace(options, wanted=_between_marks(reader, options.wanted, arguments))
    except (LogError, ValueError) as error:
        print(f"bluebridge log: {error}", file=sys.stderr)
        return 2
    if reader.dropped:
        print(reader.dropped_text, file=sys.stderr)
    if reader.stopped:
        print(f"the log was stopped: {reader.stopped}", file=sys.stderr)
    try:
        if arguments.pcap is not None:
            export.run(reader, options.wanted, arguments)
            return 1 if reader.cut else 0
        if arguments.perfetto is not None:
            _draw(reader, options, arguments)
        else:
            _print(VIEWS[arguments.view].lines(reader, options))
    except LogError as error:
        print(f"bluebridge log: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if reader.cut:
        text = "the log's last event is cut short: its writer was killed; all before it is shown"
        print(text, file=sys.stderr)
        return 1
    return 0


def _reader(arguments: argparse.Namespace) -> LogReader:
    """Open the log; raises `LogError` for none, `ValueError` for a device that it lacks."""
    if arguments.folder is None:
        raise ValueError("no DIR: name the folder of a run or of a bus log")
    reader = LogReader(arguments.folder)
    devices = reader.meta["devices"]
    if arguments.device is not None and arguments.device not in devices:
        there = ", ".join(devices) or "none"
        raise ValueError(f"--device {arguments.device}: not in this log; it has {there}")
    return reader


def _print(lines: Iterator[str]) -> None:
    shown = lines if output.width() is None else output.fitted(lines)
    for line in shown:
        print(line)


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise `ValueError` for options that do not go with the file that is to be written."""
    files = [name for name in _FILES if getattr(arguments, name) is not None]
    if len(files) > 1:
        raise ValueError(f"--{files[0]} and --{files[1]}: one file at a time")
    file = files[0] if files else ""
    if arguments.force and not file:
        raise ValueError("--force needs --pcap or --perfetto FILE")
    for name in ("roce", "cut", "tlp"):
        if getattr(arguments, name) and file not in ("pcap", "dissector"):
            raise ValueError(f"--{name} needs --pcap FILE")
    for of, names, why in _CLASHES:
        for name in names if of == file else ():
            value = getattr(arguments, name)
            if value is not None and value is not False and (name, value) != ("format", "table"):
                raise ValueError(f"--{name.replace('_', '-')} {why}")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.tree and arguments.view == DEFAULT:
        arguments.view = TABLE
    view = VIEWS[arguments.view]
    if None not in (arguments.since, arguments.until) and arguments.until < arguments.since:
        raise ValueError("--to is before --from: exchange them")
    if arguments.tree and not view.tree:
        raise ValueError(f"--tree needs --view {_TREES}")
    if not view.event_options and arguments.pcap:  # --decode: the other views say it in any case
        raise ValueError(f"--pcap does not go with --view {view.name}: drop one")
    if arguments.failed and not view.failed:
        raise ValueError(f"--failed needs --view {_FAILED}")
    if arguments.no_polling and not view.polling:
        raise ValueError(f"--no-polling needs --view {_POLLING}")
    if not view.event_filters:
        for name in ("kind", "bar"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name} chooses events, --view {view.name} needs all")


def _options(arguments: argparse.Namespace) -> Options:
    model = None
    if arguments.profile is not None:
        model = import_module("bluebridge.host_tools.analyzer.model").load(arguments.profile)
    return Options(
        _filter(arguments),
        model,
        arguments.limit,
        arguments.tree,
        arguments.decode,
        arguments.format == "jsonl",
        arguments.failed,
        not arguments.no_polling,
        output.width(),
    )


def _draw(reader: LogReader, options: Options, arguments: argparse.Namespace) -> None:
    """Write the timeline and print what is in it; raises `LogError` and then leaves no file."""
    try:
        timeline = import_module("bluebridge.host_tools.analyzer.timeline.timeline")
    except ImportError as error:
        mend = "`pip install 'bluebridge[timeline]'` brings it"
        raise LogError(f"--perfetto needs the package {error.name}: {mend}") from error
    path = arguments.perfetto
    with output.opened(path, replace=arguments.force) as file:
        packed = path.suffix == ".gz"
        out = GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) if packed else file
        written = timeline.write(reader, options, out.write)
        if packed:
            out.close()
        if not written.events:
            raise LogError(f"{reader.folder} holds no event that passes the filters")
    print(f"{path}: {written}", file=sys.stderr)


def _filter(arguments: argparse.Namespace) -> Filter:
    kinds = None
    if arguments.kind:
        names = arguments.kind.split(",")
        unknown = [name for name in names if name not in KINDS]
        if unknown:
            raise ValueError(f"--kind {unknown[0]}: choose from {', '.join(KINDS)}")
        kinds = frozenset().union(*(KINDS[name] for name in names))
    return Filter(
        kinds,
        arguments.bar,
        arguments.since,
        arguments.until,
        arguments.device,
        arguments.event or 0,
    )


def _between_marks(reader: LogReader, wanted: Filter, arguments: argparse.Namespace) -> Filter:
    begin = -1
    if arguments.from_mark is not None:
        begin = find_mark(reader, arguments.from_mark).number
        wanted = replace(wanted, first=max(wanted.first, begin))
    if arguments.to_mark is not None:
        end = find_mark(reader, arguments.to_mark, begin).time
        wanted = replace(wanted, until=end if wanted.until is None else min(wanted.until, end))
    return wanted


def _number(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value
