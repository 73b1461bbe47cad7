"""`python -m tests.fuzz.record FOLDER [PYTEST'S WORDS]`: inputs of steps out of the unit tests.

While a unit test runs, what it does to hosts and functions is written down; each test becomes an
input of `hca` or `ntb` in FOLDER, of which `tests.fuzz.keep` takes those that reach more. Tests of
other shapes (three guests, models of their own) are left out. Without a FOLDER the prologues are
written anew: corpora that start from one that changed have to be recorded again, too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import prologues
from tests.fuzz.beginnings import BEGINNINGS
from tests.fuzz.record_clients import Wire
from tests.fuzz.recorder import Recorder

LONGEST = 12_000
"""Bytes of an input: longer ones are left out."""


def shortened(target: str, header: bytes, steps: bytes) -> bytes:
    """An input: what a prologue has done is not told again."""
    best = 0
    for number in prologues.NAMES[target]:
        before = prologues.prologue(target, number)
        if steps.startswith(before) and len(before) > len(prologues.prologue(target, best)):
            best = number
    return bytes((best,)) + header + steps[len(prologues.prologue(target, best)) :]


class Plugin:
    """For pytest: writes an input for each test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorder = Recorder()
        self.recorder.listen()
        self.wire = Wire()
        self.wire.listen()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around set-up, call and tear-down."""
        self.wire.start()
        with self.recorder.taping() as tape:
            yield
        if data := self.wire.content():
            self._write("sockets", data)
        if not tape.clean or not tape.target:
            return
        data = shortened(tape.target, bytes(tape.header), tape.content())
        self._write(tape.target, data)

    def _write(self, target: str, data: bytes) -> None:
        if len(data) <= LONGEST:
            path = self.folder / target / hashlib.sha1(data).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def main() -> int:
    """Exit status of pytest."""
    if len(sys.argv) < 2:
        recorder = Recorder()
        recorder.listen()
        for name, begin in BEGINNINGS.items():
            with recorder.taping() as tape:
                begin()
            path = prologues.FOLDER / tape.target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tape.content())
        return 0
    words = ["-q", "-p", "no:cacheprovider", *sys.argv[2:]]
    return int(pytest.main(words, plugins=[Plugin(Path(sys.argv[1]))]))


if __name__ == "__main__":
    sys.exit(main())
