"""`bluebridge model DIR...`: modelled times of the sends in bus logs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bluebridge.device.buslog.reader import LogError
from bluebridge.host_tools.analyzer.model.model import (
    NAMES,
    Model,
    ProfileError,
    built_in,
    load,
    read_profile,
)
from bluebridge.host_tools.study import tables

DEFAULT = "system-x"

Row = dict[str, object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add = parser.add_argument
    add("folders", metavar="DIR", nargs="*", type=Path, help="folder of a run or of a bus log")
    add(
        "--table", choices=tuple(tables.TABLES),
        help="this table or figure of the BlueFlame study beside the modelled one; the folders are "
        "sweeps with BlueFlame and without, of 4.3 one with entries in the wrong page",
    )  # fmt: skip
    names = ", ".join(built_in())
    add(
        "--profile", metavar="NAME|FILE",
        help=f"{names}, or a TOML file like theirs (default: the table's, else {DEFAULT})",
    )  # fmt: skip
    add("--json", action="store_true", help="one JSON object for each row, instead of a table")
    add("--list", action="store_true", help="the built-in profiles with their constants")


def main(arguments: argparse.Namespace) -> int:
    """Print the tables; return the exit status, 1 if a log was cut short."""
    try:
        if not arguments.folders and not arguments.list:
            raise ValueError("no DIR: name the folder of a run or of a bus log")
        folders = [] if arguments.list else arguments.folders
        samples = [tables.read_samples(folder, _model(arguments)) for folder in folders]
        lines = list(_lines(arguments, samples))
    except (LogError, ProfileError, ValueError) as error:
        print(f"bluebridge model: {error}", file=sys.stderr)
        return 2
    try:
        print("\n".join(lines))
    except BrokenPipeError:  # the reader has closed the pipe, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if arguments.table is not None:
        for gap in tables.gaps(tables.TABLES[arguments.table], samples):
            print(gap, file=sys.stderr)
    for folder, each in zip(folders, samples, strict=True):
        if each.dropped:
            print(f"{folder}: the oldest events were dropped", file=sys.stderr)
        if each.cut:
            what = "the last event is cut short, its writer was killed; all before it counts"
            print(f"{folder}: {what}", file=sys.stderr)
    return int(any(each.cut for each in samples))


def _model(arguments: argparse.Namespace) -> Model:
    table = tables.TABLES.get(arguments.table)
    return load(arguments.profile or (table.profile if table else DEFAULT))


def _lines(arguments: argparse.Namespace, logs: Sequence[tables.Samples]) -> Iterator[str]:
    if arguments.list:
        for name in built_in():
            profile = read_profile(name)
            if arguments.json:
                constants = {each: getattr(profile.us, each) for each in NAMES}
                yield json.dumps({"profile": name, "stores": profile.stores, "us": constants})
                continue
            values = ", ".join(f"{each} {getattr(profile.us, each):g}" for each in NAMES)
            yield f"{name}: stores {profile.stores}; us: {values}"
        return
    table, model = tables.TABLES.get(arguments.table), _model(arguments)
    if arguments.json:
        rows = size_rows(arguments.folders, logs) if table is None else study_rows(table, logs)
        yield from map(json.dumps, rows)
    elif table is None:
        yield from tables.size_lines(model, logs, arguments.folders)
    else:
        yield from tables.study_lines(table, model, logs)


def size_rows(folders: Sequence[Path], logs: Sequence[tables.Samples]) -> Iterator[Row]:
    """Yield a row for each log, operation, payload and way of posting; times are microseconds."""
    for number, (operation, size, way), group in tables.sorted_groups(logs):
        head: Row = {
            "folder": str(folders[number - 1]),
            "operation": operation,
            "payload": size,
            "way": way.value,
        }
        yield head | tables.means(group)


def study_rows(table: tables.StudyTable, logs: Sequence[tables.Samples]) -> Iterator[Row]:
    """Yield the rows of a table; `study` has the values of the study, the rest is modelled."""
    for each in tables.compare(table, logs):
        modelled = asdict(each)
        yield {"table": table.title, "study": modelled.pop("row"), **modelled}
