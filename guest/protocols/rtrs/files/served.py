"""Trees of files served in a directory, and the commands `ls`, `get` and `set` on them."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from bluebridge.guest.fuse.connection import FuseConnection
from bluebridge.guest.fuse.mount import mounted_at, need_fuse
from bluebridge.guest.fuse.tree import Directory

HOME = Path("/run/bluebridge")


class Loop(Protocol):
    """The methods of `rtrs.transport.loop.Loop` that serving files needs."""

    def register(self, fd: int, events: int, handler: Callable[[int], None]) -> None: ...

    def unregister(self, fd: int) -> None: ...


@contextlib.contextmanager
def served(loop: Loop, place: str, tree: Directory, log: Callable[[str], None]) -> Iterator[None]:
    """Serve `tree` at `place` below /run/bluebridge.

    Where that fails, `log` gets a line with the reason, and there are no files.
    """
    directory = HOME / place
    with contextlib.ExitStack() as stack:
        try:
            need_fuse()
            fd = stack.enter_context(mounted_at(directory, "bluebridge"))
        except OSError as error:
            log(f"no files at {directory}: {error.strerror}")
        else:
            stack.enter_context(_registered(loop, fd, tree))
        yield


@contextlib.contextmanager
def _registered(loop: Loop, fd: int, tree: Directory) -> Iterator[None]:
    connection = FuseConnection(fd, tree)

    def ready(events: int) -> None:
        if not connection.on_readable():
            loop.unregister(fd)

    loop.register(fd, select.POLLIN, ready)
    try:
        yield
    finally:
        loop.unregister(fd)
        connection.close()


def add_file_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands; `file` in their arguments is a function that returns the exit status."""
    ls = commands.add_parser("ls", help="the files of everything that runs, with their contents")
    ls.add_argument("path", nargs="?", default="", help="only what is below it")
    ls.set_defaults(file=lambda given: _list(HOME / given.path))
    get = commands.add_parser("get", help="print a file, such as rtrs-client/NAME/mpath_policy")
    get.add_argument("path")
    get.set_defaults(file=lambda given: _get(HOME / given.path))
    put = commands.add_parser("set", help="write to a file; returns when it is done")
    put.add_argument("path")
    put.add_argument("value")
    put.set_defaults(file=lambda given: _set(HOME / given.path, given.value))


def run_file_command(given: argparse.Namespace) -> int:
    """Run the command; returns 0, or 1 after one line that says what is wrong."""
    try:
        status: int = given.file(given)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return status


def _list(top: Path) -> int:
    for path in _files(top):
        name = path.relative_to(HOME)
        if path.is_symlink():
            print(f"{name} -> {os.readlink(path)}")
            continue
        lines = path.read_text().splitlines() or [""]
        print(f"{name}: {lines[0]}")
    return 0


def _files(top: Path) -> Iterator[Path]:
    """Files and links below `top`, which may be one; raises `OSError`."""
    if not top.is_dir() or top.is_symlink():
        yield top
        return
    for child in sorted(top.iterdir()):
        yield from _files(child)


def _get(path: Path) -> int:
    print(path.read_text(), end="")
    return 0


def _set(path: Path, value: str) -> int:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, f"{value}\n".encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(fd)
    return 0
