"""What stays of a run: the transcripts of tests that failed, and the list of unsteady tests."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.run.outcome import Result

SHOWN = 10
"""How many of the last lines of the list are shown."""
_LARGEST = 256 << 20
"""Bytes; larger files are not copied."""
_LONGEST_NAME = 80
"""Characters of the readable part of a folder's name."""
_DATE = "%Y-%m-%d %H:%M"
_DATE_LENGTH = 16


class Kept:
    """`root`/list.txt and a folder for each run with a failure, named after its beginning."""

    def __init__(self, root: Path, clock: Callable[[], time.struct_time] = time.localtime) -> None:
        """Makes the folder of this run."""
        self.list = root / "list.txt"
        self._began = clock()
        self.run = _new(root / time.strftime("%Y%m%d-%H%M%S", self._began))
        self._work = self.run / "work"

    def work(self, name: str) -> Path:
        """A new folder for what a suite records while it runs; `close` removes it."""
        folder = self._work / _file_name(name)
        folder.mkdir(parents=True)
        return folder

    def folder(self, test: str) -> Path:
        """Where the transcripts of a test are kept."""
        return self.run / _file_name(test)

    def keep(self, result: Result, turn: str) -> None:
        """Copy the transcripts of one turn, `first` or `second`, of a test."""
        place = self.folder(result.test) / turn
        place.mkdir(parents=True)
        with (place / "report.txt").open("w") as report:
            report.write(result.report)
            for number, source in enumerate(result.folders):
                report.writelines(_copy(source, place / f"{number}-{source.name}"))

    def add(self, unsteady: Sequence[Result]) -> None:
        """Put tests that passed in their second turn on the list."""
        if not unsteady:
            return
        date = time.strftime(_DATE, self._began)
        with self.list.open("a") as stream:
            for each in unsteady:
                stream.write(f"{date}  {each.test}  {each.reason}  {self.folder(each.test)}\n")

    def last_lines(self) -> list[str]:
        """The end of the list: unsteady tests of the last runs, this one's included."""
        return self._lines()[-SHOWN:]

    def has(self, test: str) -> bool:
        """Whether a test is on the list."""
        return any(line[_DATE_LENGTH:].startswith(f"  {test}  ") for line in self._lines())

    def _lines(self) -> list[str]:
        return self.list.read_text().splitlines() if self.list.is_file() else []

    def close(self) -> None:
        """Remove what only this run needed; its folder too when nothing was kept."""
        shutil.rmtree(self._work, ignore_errors=True)
        if not any(self.run.iterdir()):
            self.run.rmdir()


def _new(path: Path) -> Path:
    """Make a folder called `path`, or `path` with a number when there is one."""
    number = 1
    while True:
        made = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            made.mkdir(parents=True)
            return made
        except FileExistsError:
            number += 1


def _file_name(test: str) -> str:
    """A name of its own for each test: what of it may stand in a name, and a digest of all."""
    readable = re.sub(r"[^A-Za-z0-9_.=]+", "-", test).strip("-.")[-_LONGEST_NAME:]
    return f"{readable}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"


def _copy(source: Path, target: Path) -> Iterator[str]:
    """Copy a file or a folder, without sockets and without what is larger than a transcript.

    Yields a line when something could not be copied: processes that end may still remove files.
    """
    try:
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=_unwanted)
        elif source.is_file():
            shutil.copy2(source, target)
    except OSError as error:  # of `copytree` at its end: it has copied all else
        yield f"not copied completely: {source}: {error}\n"


def _unwanted(folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if not _wanted(Path(folder) / name)}


def _wanted(path: Path) -> bool:
    if path.is_symlink() or path.is_dir():
        return True
    try:
        return path.is_file() and path.stat().st_size <= _LARGEST
    except FileNotFoundError:
        return False
