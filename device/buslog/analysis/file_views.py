"""`bluebridge log DIR --perfetto FILE` and `--html FILE`: views of a log as files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bluebridge.device.buslog.analysis import html_page, perfetto
from bluebridge.device.buslog.analysis.transfer import Transfer
from bluebridge.device.buslog.analysis.view import Options, wanted_transfers
from bluebridge.device.buslog.output import opened
from bluebridge.device.buslog.reader import LogError, LogReader

PAGE_REQUESTS = 20_000
"""Work requests of a page unless --limit is given: a browser holds them in memory."""
_FILES = ("pcap", "perfetto", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of both views."""
    parser.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE",
        help="write a timeline of the work requests for the Perfetto UI or chrome://tracing",
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
    limit = options.limit
    path = arguments.perfetto
    if path is None:
        path = arguments.html
        limit = PAGE_REQUESTS if limit is None else limit
    count = 0

    def counted() -> Iterator[Transfer]:
        nonlocal count
        for transfer in islice(wanted_transfers(reader, options), limit):
            count += 1
            yield transfer

    with opened(path, replace=arguments.force) as file:
        if arguments.perfetto is not None:
            pieces = perfetto.write(perfetto.Trace(options.model).records(counted()))
        else:
            pieces = html_page.write(counted(), options.model, reader.folder.name)
        for piece in pieces:
            file.write(piece)
        if not count:
            raise LogError(f"{reader.folder} holds no work request that passes the filters")
    text = f"{path}: {count} work requests"
    if count == limit:
        text += "; there may be more: --from, --event and --limit choose others"
    print(text, file=sys.stderr)
