"""Processes of NTRDMA at a device server: one that stays, and others that come and end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.models.server import ROOT

SECONDS = 120.0
QUIET_SECONDS = 1.0


class Lives:
    """`staying` is the process that lives on; others are started by `run`."""

    def __init__(self, folder: Path, back_end: str) -> None:
        self._folder, self._back_end = folder, back_end
        self.staying = self._start("a", "stay")
        self._said: list[dict[str, int]] = []
        self._heard = threading.Condition()
        assert self.staying.stdout is not None
        assert self.staying.stdout.readline() == "listening\n"
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _start(self, name: str, *words: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "tests.wire.ntrdma_life", str(self._folder), name]
        return subprocess.Popen(
            [*program, *words, "--backend", self._back_end],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _read(self) -> None:
        assert self.staying.stdout is not None
        for line in self.staying.stdout:
            if not line.startswith("{"):
                continue  # the connection manager says what it could not send
            with self._heard:
                self._said.append(json.loads(line))
                self._heard.notify_all()

    def holdings(self) -> dict[str, int]:
        """Return what the staying side has said last, once it says nothing more."""
        with self._heard:
            assert self._heard.wait_for(lambda: bool(self._said), SECONDS)
            while self._heard.wait(QUIET_SECONDS):
                pass
            return self._said[-1]

    def run(self, ends: list[str]) -> None:
        """Each end (STATE:HOW), and a life after it that finds its peer and right data."""
        process = self._start("b", "lives", "--ends", *ends)
        said, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors
        assert [line for line in said.splitlines() if line in ends] == ends

    def close(self) -> None:
        """End the staying process, which obeys."""
        self.staying.terminate()
        assert self.staying.stdout is not None and self.staying.stderr is not None
        errors = self.staying.stderr.read()
        assert self.staying.wait(SECONDS) == 0, errors
        self._reader.join()
        self.staying.stdout.close()
        self.staying.stderr.close()


@contextmanager
def lives(folder: Path, back_end: str) -> Iterator[Lives]:
    """A staying side, ended in any case."""
    both = Lives(folder, back_end)
    try:
        yield both
        both.close()
    finally:
        both.staying.kill()
