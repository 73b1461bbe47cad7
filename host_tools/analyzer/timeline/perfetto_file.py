"""`bluebridge log DIR --perfetto FILE`: the timeline of a log as a file."""

from __future__ import annotations

import argparse
import sys
from gzip import GzipFile
from importlib import import_module
from pathlib import Path

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.host_tools.analyzer.output import opened
from bluebridge.host_tools.analyzer.views.view import Options

GZIP_LEVEL = 4
"""Compression level that takes half of the default's time; files are a few percent larger."""
_FILES = ("pcap", "perfetto")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option of the command `log`."""
    parser.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE",
        help="write a timeline of both machines for ui.perfetto.dev; a FILE in .gz is compressed",
    )


def check_arguments(arguments: argparse.Namespace) -> None:
    """Check options; raises `ValueError` for options that do not go together."""
    files = [name for name in _FILES if getattr(arguments, name) is not None]
    if len(files) > 1:
        raise ValueError(f"--{files[0]} and --{files[1]}: one file at a time")
    if arguments.force and not files:
        raise ValueError("--force needs --pcap or --perfetto FILE")
    if arguments.perfetto is None:
        return
    if arguments.format != "table":
        raise ValueError("--json chooses how lines are printed, --perfetto draws: drop one")
    for other in ("kind", "bar", "decode", "tree"):
        if getattr(arguments, other) not in (None, False):
            raise ValueError(f"--{other} chooses what is printed, --perfetto draws all: drop one")


def run(reader: LogReader, options: Options, arguments: argparse.Namespace) -> None:
    """Write the file and print what is in it; raises `LogError` and then leaves no file."""
    try:
        timeline = import_module("bluebridge.host_tools.analyzer.timeline.timeline")
    except ImportError as error:
        mend = "`pip install 'bluebridge[timeline]'` brings it"
        raise LogError(f"--perfetto needs the package {error.name}: {mend}") from error
    path = arguments.perfetto
    with opened(path, replace=arguments.force) as file:
        packed = path.suffix == ".gz"
        out = GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) if packed else file
        written = timeline.write(reader, options, out.write)
        if packed:
            out.close()
        if not written.events:
            raise LogError(f"{reader.folder} holds no event that passes the filters")
    print(f"{path}: {written}", file=sys.stderr)
