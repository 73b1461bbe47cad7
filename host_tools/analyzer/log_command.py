"""`bluebridge log DIR`: show a bus log."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from bluebridge.device.buslog.marks import find_mark
from bluebridge.device.buslog.reader import Filter, LogError, LogReader
from bluebridge.host_tools.analyzer import output
from bluebridge.host_tools.analyzer.comparison import compare
from bluebridge.host_tools.analyzer.event_lines import KINDS
from bluebridge.host_tools.analyzer.pcap import dissector, export
from bluebridge.host_tools.analyzer.timeline import perfetto_file
from bluebridge.host_tools.analyzer.views.table import DEFAULT, TABLE, VIEWS
from bluebridge.host_tools.analyzer.views.view import Options, View

_TREES = " or ".join(view.name for view in VIEWS.values() if view.tree)
_MODELLED = " or ".join(view.name for view in VIEWS.values() if view.modelled)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        type=Path,
        help="folder of a run or of a bus log (default: of the newest one)",
    )
    parser.add_argument(
        "--view",
        choices=tuple(VIEWS),
        default=DEFAULT,
        help=", ".join(_summary(view) for view in VIEWS.values()),
    )
    parser.add_argument(
        "--tree",
        action="store_true",
        help=f"with --view {_TREES}: all parts of each (without --view: of the table)",
    )
    parser.add_argument(
        "--profile",
        metavar="P",
        help=f"with --view {_MODELLED}, --perfetto: modelled times as well, by the "
        "profile of this name or in this file",
    )
    parser.add_argument("--bar", type=int, choices=range(6), help="only accesses of this BAR")
    parser.add_argument("--kind", help=f"comma-separated: {', '.join(KINDS)}")
    parser.add_argument("--device", help="only this device, such as a, b.1, a.ntb")
    parser.add_argument("--from", dest="since", type=float, metavar="T", help="seconds")
    parser.add_argument("--to", dest="until", type=float, metavar="T", help="seconds")
    parser.add_argument("--event", type=_number, metavar="N", help="from event number N on")
    parser.add_argument(
        "--from-mark",
        "--mark",
        dest="from_mark",
        metavar="TEXT",
        help="from the last mark with TEXT on (`bluebridge mark`)",
    )
    parser.add_argument(
        "--to-mark", metavar="TEXT", help="up to the next mark with TEXT, or the last one"
    )
    parser.add_argument(
        "--diff",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="instead: where two logs differ first, times and addresses aside; status 1 if they do",
    )
    parser.add_argument(
        "--limit", type=_number, metavar="N", help="at most N rows, or events of a timeline"
    )
    parser.add_argument(
        "--format", choices=("table", "jsonl"), default="table", help="jsonl: a JSON object a line"
    )
    parser.add_argument(
        "--json", dest="format", action="store_const", const="jsonl", help="same as --format jsonl"
    )
    parser.add_argument("--decode", action="store_true", help="say what each transfer was")
    perfetto_file.add_arguments(parser)
    export.add_arguments(parser)
    dissector.add_arguments(parser)


def _summary(view: View) -> str:
    default = ", default" if view.name == DEFAULT else ""
    return f"{view.summary} ({view.name}{default})"


def main(arguments: argparse.Namespace) -> int:
    """Print the log; return the exit status, 1 if it was cut short or differs with --diff."""
    try:
        if arguments.diff is not None:
            return _compare(*arguments.diff)
        if arguments.dissector is not None:
            dissector.check_arguments(arguments)
            dissector.run(arguments.dissector, replace=arguments.force)
            return 0
        export.check_arguments(arguments)
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
            perfetto_file.run(reader, options, arguments)
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


def _compare(one: Path, other: Path) -> int:
    alike, lines = compare(LogReader(one), LogReader(other))
    _print(lines)
    return 0 if alike else 1


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


def _check(arguments: argparse.Namespace) -> None:
    if arguments.tree and arguments.view == DEFAULT:
        arguments.view = TABLE
    view = VIEWS[arguments.view]
    if None not in (arguments.since, arguments.until) and arguments.until < arguments.since:
        raise ValueError("--to is before --from: exchange them")
    if arguments.tree and not view.tree:
        raise ValueError(f"--tree needs --view {_TREES}")
    perfetto_file.check_arguments(arguments)
    if not view.event_options and arguments.pcap:  # --decode: the other views say it in any case
        raise ValueError(f"--pcap does not go with --view {view.name}: drop one")
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
        output.width(),
    )


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
