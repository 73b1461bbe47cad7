"""`bluebridge cp`: files between the host and guests, or from guest to guest."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.commands import copy_progress
from bluebridge.host_tools.commands.tree import Tree, guest_tree, host_tree
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.processes.termination import termination_as_exception

_IN_GUEST = re.compile(r"([A-Za-z][A-Za-z0-9]*):(.*)", re.DOTALL)


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
    """Return the name of the copy of `source` in a folder."""
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
        with copy_progress.of(str(source)) as moved:
            self._agent(source.guest).get(source.path, target, moved)

    def _put(self, source: Path, target: Place) -> None:
        if not source.is_file():
            why = "is no regular file" if source.exists() else "does not exist"
            raise LabError(f"{source} {why}")
        with copy_progress.of(source.name, source.stat().st_size) as moved:
            self._agent(target.guest).put(source, target.path, moved=moved)

    def _folder(self, source: Place, target: Place) -> None:
        tree = self._tree(source)
        self._make(target, tree)
        for name in tree.files:
            self._file(source.inside(name), target.inside(name))
        for name in tree.others:
            print(f"bluebridge: {source.inside(name)} is no file and was left out", file=sys.stderr)

    def _tree(self, source: Place) -> Tree:
        if source.guest:
            return guest_tree(self._agent(source.guest), source.path)
        return host_tree(source.path)

    def _make(self, target: Place, tree: Tree) -> None:
        """Make the target folder and the folders of `tree` in it."""
        if target.guest:
            folders = [target.path, *(target.inside(name).path for name in tree.folders)]
            _make_in_guest(self._agent(target.guest), folders)
            return
        for name in ("", *tree.folders):
            Path(target.path, name).mkdir(parents=not name, exist_ok=True)


_AT_ONCE = 200


def _make_in_guest(agent: Agent, folders: list[str]) -> None:
    for begin in range(0, len(folders), _AT_ONCE):
        agent.run(["mkdir", "-p", "--", *folders[begin : begin + _AT_ONCE]], check=True)
