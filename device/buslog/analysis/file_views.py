"""`bluebridge log DIR --perfetto FILE` and `--html FILE`: views of a log as files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from gzip import GzipFile
from importlib import import_module
from itertools import islice
from pathlib import Path

from bluebridge.device.buslog.analysis import html_page
from bluebridge.device.buslog.analysis.transfer import Transfer
from bluebridge.device.buslog.analysis.view import Options, wanted_transfers
from bluebridge.device.buslog.output import opened
from bluebridge.device.buslog.reader import LogError, LogReader

PAGE_REQUESTS = 20_000
"""Work requests of a page unless --limit is given: a browser holds them in memory."""
GZIP_LEVEL = 4
"""Half of the time of the default, and files a few percent longer."""
_FILES = ("pcap", "perfetto", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of both views."""
    parser.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE",
        help="write a timeline of both machines for ui.perfetto.dev; a FILE in .gz is compressed",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page with table, filters and timeline that needs no network",
    )


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raises `ValueError` for options that do not go together."""
    files = [name for name in _FILES if getattr(arguments, name) is not None]
    if len(files) > 1:
        raise ValueError(f"--{files[0]} and --{files[1]}: one file at a time")
    if arguments.force and not files:
        raise ValueError("--force needs --pcap, --perfetto or --html FILE")
    for name in ("perfetto", "html"):
        if getattr(arguments, name) is None:
            continue
        for other in ("kind", "bar", "decode", "tree"):
            if getattr(arguments, other) not in (None, False):
                raise ValueError(f"--{other} chooses what is printed, --{name} draws all: drop one")


def run(reader: LogReader, options: Options, arguments: argparse.Namespace) -> None:
    """Write the file and print what is in it; raises `LogError`, and then there is no file."""
    if arguments.perfetto is not None:
        _timeline(reader, options, arguments)
    else:
        _page(reader, options, arguments)


def _timeline(reader: LogReader, options: Options, arguments: argparse.Namespace) -> None:
    try:
        timeline = import_module("bluebridge.device.buslog.timeline.timeline")
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


def _page(reader: LogReader, options: Options, arguments: argparse.Namespace) -> None:
    limit = PAGE_REQUESTS if options.limit is None else options.limit
    count = 0

    def counted() -> Iterator[Transfer]:
        nonlocal count
        for transfer in islice(wanted_transfers(reader, options), limit):
            count += 1
            yield transfer

    with opened(arguments.html, replace=arguments.force) as file:
        for piece in html_page.write(counted(), options.model, reader.folder.name):
            file.write(piece)
        if not count:
            raise LogError(f"{reader.folder} holds no work request that passes the filters")
    text = f"{arguments.html}: {count} work requests"
    if count == limit:
        text += "; there may be more: --from, --event and --limit choose others"
    print(text, file=sys.stderr)
