"""`bluebridge tour`: a pair, its page, and the steps, one after the other."""

from __future__ import annotations

import argparse
import secrets
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.tour.live import Stage, bluebridge
from bluebridge.host_tools.tour.steps import STEPS, Step
from bluebridge.host_tools.web.app import Site, serve
from bluebridge.host_tools.web.book import Book
from bluebridge.host_tools.web.lab import Lab, find
from bluebridge.host_tools.web.live import Live


def main(options: argparse.Namespace) -> int:
    """Show the steps; return 0. Raises `LabError` when one is not as it says."""
    with _pair(quiet=options.quiet) as pair, _page(Path(pair.logs)) as address:
        stage = Stage(list(pair.names()), Path(pair.logs))
        for number, step in enumerate(STEPS, start=1):
            _show(number, step, stage, address)
            if options.pause and sys.stdin.isatty():
                input(f"\nEnter {'goes on' if number < len(STEPS) else 'ends the guests'} ")
    if options.bridge:
        print("\nA bridge: each host sees a window into the memory of the other one.\n", flush=True)
        bluebridge("ntb", "demo", *(["--quiet"] if options.quiet else []))
    more = "" if options.bridge else "`--bridge` shows a bridge as well, "
    print(f"\nThat was the tour; {more}docs/verbs.md has a program of thirty lines.")
    return 0


def _show(number: int, step: Step, stage: Stage, address: str) -> None:
    print(
        f"\n{number} of {len(STEPS)}: {step.title}\n\n{textwrap.fill(step.text, 78)}\n", flush=True
    )
    found = stage.run(step)
    for sight, event in found:
        print(f"  {event.time:11.6f} {event.device}  {decode(event)}")
        print(textwrap.fill(sight.says, 78, initial_indent=" " * 4, subsequent_indent=" " * 4))
    print(f"\n  played in a browser: {address}#{found[0][1].number}", flush=True)


@contextmanager
def _pair(*, quiet: bool) -> Iterator[PairRecord]:
    before = {entry.number for entry, _ in registry.pairs()}
    bluebridge("up", *(["--quiet"] if quiet else []))
    number, pair = next(
        (entry.number, pair) for entry, pair in registry.pairs() if entry.number not in before
    )
    try:
        yield pair
    finally:
        bluebridge("down", str(number))


@contextmanager
def _page(folder: Path) -> Iterator[str]:
    folder, title, socket = find(folder)
    lab, secret = Lab(LogReader(folder), title, socket), secrets.token_urlsafe(24)
    server = serve(Site(lab, Book(lab.reader.folder), Live(lab)).application(), secret, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{secret}/"
    finally:
        server.shutdown()
        server.server_close()
