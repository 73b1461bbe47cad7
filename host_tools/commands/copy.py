"""`bluebridge cp`: files between the host and guests, or from guest to guest."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bluebridge.host_tools.agent import Agent, AgentCommandFailed
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.processes import termination_as_exception
from bluebridge.printable import printable

_MOST_NAMES = 100_000
_NAME_BYTES = 8 << 20
"""The files that a folder of a guest may have to be copied, and the bytes of their names."""

_AFTER = 1.0
"""The seconds that a copy takes at least before its progress is shown."""
_EVERY = 0.2
_CLEAR = "\r\x1b[K"

_AT_ONCE = 200
_IN_GUEST = re.compile(r"([A-Za-z][A-Za-z0-9]*):(.*)", re.DOTALL)


@dataclass
class Tree:
    """The entries below a folder, as relative paths; a folder comes before its contents."""

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """The links, devices and sockets, which are not copied."""


def host_tree(top: str) -> Tree:
    """Return the files below `top` on the host. Raises `OSError`."""
    tree = Tree()
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(os.path.join(top, folder)) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    tree.folders.append(name)
                    pending.append(name)
                elif entry.is_file(follow_symlinks=False):
                    tree.files.append(name)
                else:
                    tree.others.append(name)
    return tree


def guest_tree(agent: Agent, top: str) -> Tree:
    """Return the files below `top` in a guest. Raises `LabError`."""
    return Tree(
        _find(agent, top, ["-type", "d"]),
        _find(agent, top, ["-type", "f"]),
        _find(agent, top, ["!", "-type", "d", "!", "-type", "f"]),
    )


def _find(agent: Agent, top: str, test: list[str]) -> list[str]:
    try:
        # Relative names, so that ours are all the guest can put before them.
        words = ["find", ".", "-mindepth", "1", *test, "-print0"]
        found = agent.run(words, cwd=top, check=True, most=_NAME_BYTES)
    except AgentCommandFailed as error:
        raise LabError(f"guest {agent.guest}: {top}: {error.output.strip()}") from None
    if found.stdout.count(b"\0") > _MOST_NAMES:
        raise LabError(
            f"guest {agent.guest}: {top} has more than {_MOST_NAMES} files",
            f"pack it: bluebridge run {agent.guest} -- tar -c {shlex.quote(top)} > FILE.tar",
        )
    names = [os.fsdecode(name) for name in found.stdout.split(b"\0") if name]
    return [_checked(agent.guest, name) for name in names]


def _checked(guest: str, name: str) -> str:
    """Return a file name of a guest without its leading `./`.

    Raises `LabError` for a name that leads out of the folder that is copied: a guest is not
    trusted.
    """
    start, *parts = name.split("/")
    if start != "." or not parts or any(part in ("", ".", "..") for part in parts):
        raise LabError(f"guest {guest}: its file name {name!r} is not to be trusted")
    return "/".join(parts)


class CopyProgress:
    """Shows the progress of a copy; called with the number of bytes of each piece.

    `total` is the size in bytes, or 0 where it is not known.
    """

    def __init__(self, name: str, total: int = 0) -> None:
        self._name = printable(name)
        self._total = total
        self._done = 0
        self._begin = time.monotonic()
        self._next = self._begin + _AFTER
        self._shown = False

    def __call__(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._shown = True
            sys.stderr.write(_CLEAR + self.text(now - self._begin))
            sys.stderr.flush()

    def text(self, seconds: float) -> str:
        """Return the bytes copied and their rate after `seconds` as a line of text."""
        done, rate = self._done / 1e6, self._done / 1e6 / max(seconds, 1e-9)
        if not self._total:
            return f"{self._name}: {done:.0f} MB, {rate:.1f} MB/s"
        share = f"{100 * self._done // self._total} %"
        left = (self._total - self._done) / 1e6 / max(rate, 1e-9)
        text = f"{self._name}: {done:.0f} of {self._total / 1e6:.0f} MB ({share}), {rate:.1f} MB/s"
        return f"{text}, {left:.0f} s to go"

    def close(self) -> None:
        """Clear the line of progress, so that further output begins in an empty line."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


@contextlib.contextmanager
def of(name: str, total: int = 0) -> Iterator[Callable[[int], None] | None]:
    """Yield the function to call with the size of each piece; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress = CopyProgress(name, total)
    try:
        yield progress
    finally:
        progress.close()


@dataclass(frozen=True)
class Place:
    """A path on the host, or in the guest called `guest` if that is not empty."""

    guest: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse an argument: `a:x` is in a guest, `./a:x` and `/a:x` are on the host.

        A relative path in a guest starts at /root, so `a:` is the root user's home.
        """
        match = _IN_GUEST.fullmatch(text)
        if match is None:
            return cls("", text)
        path = match[2] or "./"
        # Commands in a guest start in /root, so that is what paths are relative to.
        return cls(match[1], path if path.startswith("/") else f"/root/{path}")

    @property
    def wants_folder(self) -> bool:
        """Whether the path ends as only the path of a folder does."""
        return self.path.endswith(("/", "/.", "/..")) or self.path in (".", "..")

    def inside(self, name: str) -> Place:
        """Return the place of `name` in this folder."""
        return Place(self.guest, f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return f"{self.guest}:{self.path}" if self.guest else self.path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Copy files. NAME:PATH is in a guest, relative to /root; a file here whose "
        "name has a colon is written ./like:this."
    )
    parser.add_argument("places", nargs="+", metavar="FILE", help="sources, then the target")
    parser.add_argument("-r", "--recursive", action="store_true", help="folders as well")


def main(options: argparse.Namespace) -> int:
    """Copy the files; return 0. Raises `LabError` for the first file that cannot be copied."""
    *sources, target = (Place.parse(text) for text in options.places)
    if not sources:
        raise UsageError("nothing to copy", "name a source and a target")
    if not any(place.guest for place in (*sources, target)):
        raise UsageError("no guest is named", "write NAME:PATH for a file in a guest")
    with termination_as_exception(), ExitStack() as stack:
        copier = Copier(_agents(stack), options.recursive)
        folder = copier.is_folder(target)
        if not folder and (len(sources) > 1 or target.wants_folder):
            raise LabError(f"{target} is no folder", "make it first, or name a file")
        for source in sources:
            copier.copy(source, target.inside(_name(source)) if folder else target)
    return 0


def _agents(stack: ExitStack) -> Callable[[str], Agent]:
    """Return a function from a guest's name to a connection, which it makes at the first use."""
    known: dict[str, Agent] = {}

    def agent(name: str) -> Agent:
        if name not in known:
            known[name] = stack.enter_context(guests.find(name).agent())
        return known[name]

    return agent


def _name(source: Place) -> str:
    name = os.path.basename(os.path.normpath(source.path))
    if name in ("", ".", "..", "/"):
        raise UsageError(f"{source} has no name of its own", "name the folder")
    return name


class Copier:
    """Copies files and folders between the host and guests, one after the other."""

    def __init__(self, agent: Callable[[str], Agent], recursive: bool) -> None:
        self._agent = agent
        self._recursive = recursive

    def is_folder(self, place: Place) -> bool:
        """Whether there is a folder at `place`."""
        if not place.guest:
            return os.path.isdir(place.path)
        test = ["test", "-d", place.path]
        return self._agent(place.guest).run(test).status == 0

    def copy(self, source: Place, target: Place) -> None:
        """Copy a file, or in a recursive copy a folder, to exactly `target`. Raises `LabError`."""
        if not self.is_folder(source):
            self._file(source, target)
        elif self._recursive:
            self._folder(source, target)
        else:
            raise UsageError(f"{source} is a folder", "copy it with cp -r")

    def _file(self, source: Place, target: Place) -> None:
        if source.guest and target.guest:
            with tempfile.TemporaryDirectory(prefix="bluebridge-cp-") as folder:
                between = Place("", os.path.join(folder, "file"))
                self._file(source, between)
                self._file(between, target)
        elif source.guest:
            self._get(source, Path(target.path))
        else:
            self._put(Path(source.path), target)

    def _get(self, source: Place, target: Path) -> None:
        if target.is_dir():
            raise LabError(f"{target} is a folder", "remove it, or choose another name")
        with of(str(source)) as moved:
            self._agent(source.guest).get(source.path, target, moved)

    def _put(self, source: Path, target: Place) -> None:
        if not source.is_file():
            why = "is no regular file" if source.exists() else "does not exist"
            raise LabError(f"{source} {why}")
        with of(source.name, source.stat().st_size) as moved:
            self._agent(target.guest).put(source, target.path, moved=moved)

    def _folder(self, source: Place, target: Place) -> None:
        if source.guest:
            tree = guest_tree(self._agent(source.guest), source.path)
        else:
            tree = host_tree(source.path)
        self._make(target, tree)
        for name in tree.files:
            self._file(source.inside(name), target.inside(name))
        for name in tree.others:
            left = printable(f"bluebridge: {source.inside(name)} is no file and was left out")
            print(left, file=sys.stderr)

    def _make(self, target: Place, tree: Tree) -> None:
        if target.guest:
            folders = [target.path, *(target.inside(name).path for name in tree.folders)]
            for begin in range(0, len(folders), _AT_ONCE):
                words = ["mkdir", "-p", "--", *folders[begin : begin + _AT_ONCE]]
                self._agent(target.guest).run(words, check=True)
            return
        for name in ("", *tree.folders):
            Path(target.path, name).mkdir(parents=not name, exist_ok=True)
