"""What stays of a run: the transcripts of tests that failed, and the list of unsteady tests."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.run.outcome import Result

SHOWN = 10
"""How many of the last lines of the list are shown."""
_LARGEST = 256 << 20
"""Bytes; larger files are not copied."""
_LONGEST_NAME = 100


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
        (place / "report.txt").write_text(result.report)
        for number, source in enumerate(result.folders):
            _copy(source, place / f"{number}-{source.name}")

    def add(self, unsteady: Sequence[Result]) -> None:
        """Put tests that passed in their second turn on the list."""
        if not unsteady:
            return
        date = time.strftime("%Y-%m-%d %H:%M", self._began)
        with self.list.open("a") as stream:
            for each in unsteady:
                stream.write(f"{date}  {each.test}  {each.reason}  {self.folder(each.test)}\n")

    def last_lines(self) -> list[str]:
        """The end of the list: unsteady tests of the last runs, this one's included."""
        return self.list.read_text().splitlines()[-SHOWN:] if self.list.is_file() else []

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
    return re.sub(r"[^A-Za-z0-9_.=]+", "-", test).strip("-.")[-_LONGEST_NAME:]


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, without sockets and without what is larger than a transcript."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=_unwanted)
    elif source.is_file():
        shutil.copy2(source, target)


def _unwanted(folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if not _wanted(Path(folder) / name)}


def _wanted(path: Path) -> bool:
    if path.is_symlink() or path.is_dir():
        return True
    return path.is_file() and path.stat().st_size <= _LARGEST
