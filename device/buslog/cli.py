"""`bluebridge log DIR`: show a bus log."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from device.buslog.pcap import export
from device.buslog.reader import LogError, LogReader
from device.buslog.views import HEADER, KINDS, Filter, json_line, select, table_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of a run or of a bus log")
    parser.add_argument("--bar", type=int, choices=(0, 2), help="only accesses of this BAR")
    parser.add_argument("--kind", help=f"comma-separated: {', '.join(KINDS)}")
    parser.add_argument("--device", help="only this device, a or b")
    parser.add_argument("--from", dest="since", type=float, metavar="T", help="seconds")
    parser.add_argument("--to", dest="until", type=float, metavar="T", help="seconds")
    parser.add_argument("--format", choices=("table", "jsonl"), default="table")
    parser.add_argument("--decode", action="store_true", help="say what each transfer was")
    export.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the log; the exit status."""
    try:
        export.check_arguments(arguments)
        wanted = _filter(arguments)
        reader = LogReader(arguments.folder)
    except (LogError, ValueError) as error:
        print(f"bluebridge log: {error}", file=sys.stderr)
        return 2
    if reader.dropped:
        print("the oldest events were dropped to keep the log bounded", file=sys.stderr)
    try:
        if arguments.pcap is not None:
            export.run(reader, wanted, arguments)
        else:
            _show(reader, wanted, arguments.format, arguments.decode)
    except LogError as error:
        print(f"bluebridge log: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _show(reader: LogReader, wanted: Filter, form: str, decoded: bool) -> None:
    if form == "table":
        print(HEADER if decoded else HEADER.removesuffix(" decoded").rstrip())
    line = table_line if form == "table" else json_line
    for event in select(reader.since(wanted.since), wanted):
        print(line(event, decoded=decoded))


def _filter(arguments: argparse.Namespace) -> Filter:
    kinds = None
    if arguments.kind:
        names = arguments.kind.split(",")
        unknown = [name for name in names if name not in KINDS]
        if unknown:
            raise ValueError(f"--kind {unknown[0]}: choose from {', '.join(KINDS)}")
        kinds = frozenset().union(*(KINDS[name] for name in names))
    return Filter(kinds, arguments.bar, arguments.since, arguments.until, arguments.device)
