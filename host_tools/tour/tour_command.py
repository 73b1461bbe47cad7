"""`bluebridge tour`: a pair, its page, and the steps, each done and found in the log."""

from __future__ import annotations

import argparse
import secrets
import shlex
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.tour.steps import STEPS, Sight, Step
from bluebridge.host_tools.web.app import Site, serve
from bluebridge.host_tools.web.book import Book
from bluebridge.host_tools.web.lab import Lab, Live, find

_PROGRAM = "/tmp/guest_program.py"
_PATIENCE = 60.0
"""The seconds that a step may take, and those in which its events must be in the log."""
_LOG_SECONDS = 5.0
_PAUSE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Start a pair and show on live traffic what an RDMA adapter does: commands, doorbell, WQE, "
        "DMA, completion, interrupt, a wrong key, a lost packet. Each step checks in the bus log "
        "that what it says happened, and has an address that plays it in a browser. The "
        "pair is ended in any case. Exit status 0 if every step was as it says."
    )
    parser.add_argument(
        "--no-pause", action="store_false", dest="pause",
        help="go on by itself (a terminal is asked for Enter at each step)",
    )  # fmt: skip
    parser.add_argument(
        "--bridge", action="store_true",
        help="then a bridge as well: `bluebridge ntb demo`, with drivers that are built once",
    )  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


class Stage:
    """A pair on which steps run: names of its two guests, and the folder of its log."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._names = {"a": names[0], "b": names[1]}
        self._folder = folder
        program = str(files(__package__) / "guest_program.py")
        for name in names:
            self._good("cp", program, f"{name}:{_PROGRAM}")

    def run(self, step: Step) -> list[tuple[Sight, Event]]:
        """Do what a step says; return its sights with their events. Raises `LabError`."""
        first = 1 + max((event.number for event in LogReader(self._folder)), default=-1)
        for line in step.commands:
            self._good(*shlex.split(line.format(**self._names)))
        if step.program:
            self._between(step.program, step.status)
        deadline = time.monotonic() + _LOG_SECONDS
        while True:
            events = list(LogReader(self._folder).events(Filter(first=first)))
            found = seen(step.sights, events)
            if len(found) == len(step.sights):
                break
            if time.monotonic() > deadline:
                missing = step.sights[len(found)]
                raise LabError(f"{step.title}: the log has no {' '.join(missing.words)}")
            time.sleep(_PAUSE)
        if step.never is not None and seen((step.never,), events):
            raise LabError(f"{step.title}: the log has {' '.join(step.never.words)}")
        return found

    def _good(self, *words: str) -> None:
        done = subprocess.run(_line(*words), capture_output=True, text=True, timeout=_PATIENCE)
        if done.returncode:
            raise LabError(f"bluebridge {shlex.join(words)}: {done.stderr.strip()}")

    def _between(self, word: str, status: str) -> None:
        """Run the program in both guests, the output of each being the input of the other."""
        serve, ask = self._line("a", "serve", word), self._line("b", "ask", word)
        pipe = subprocess.PIPE
        with (
            subprocess.Popen(serve, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server,
            subprocess.Popen(ask, stdin=server.stdout, stdout=server.stdin, stderr=pipe) as client,
        ):
            for end in (server.stdin, server.stdout):  # each is the client's now
                assert end is not None
                end.close()
            server.stdin = server.stdout = None
            try:
                _, said = client.communicate(timeout=_PATIENCE)
                _, told = server.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                client.kill()
                server.kill()
                raise LabError(f"the program of step {word} does not end") from None
        if f"RDMA_WRITE: {status}" not in said.decode():
            raise LabError(f"{word}: {said.decode().strip() or told.strip()}")

    def _line(self, guest: str, *words: str) -> list[str]:
        return _line("run", self._names[guest], "--", "python3", _PROGRAM, *words)


def bluebridge(*words: str) -> None:
    """Run a command with our standard streams. Raises `LabError` if it fails."""
    if subprocess.run(_line(*words)).returncode:
        raise LabError(f"`bluebridge {shlex.join(words)}` failed")


def _line(*words: str) -> list[str]:
    return [sys.executable, "-m", "bluebridge.host_tools.cli", *words]


def seen(sights: Sequence[Sight], events: Sequence[Event]) -> list[tuple[Sight, Event]]:
    """Return the sights that are found one behind the other, up to the first that is not there."""
    found: list[tuple[Sight, Event]] = []
    left: Iterator[Event] = iter(events)
    for sight in sights:
        event = next((each for each in left if _is(sight, each)), None)
        if event is None:
            break
        found.append((sight, event))
    return found


def _is(sight: Sight, event: Event) -> bool:
    if event.kind is not sight.kind or event.device != sight.guest:
        return False
    said = decode(event) if event.told is None else event.values.values()
    return all(word in said for word in sight.words)


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
    print(f"Its addresses end here. `bluebridge web {pair.logs}` plays the same log.")
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
