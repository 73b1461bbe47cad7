"""The serving of a tree of files in a directory by a loop."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from bluebridge.guest.fuse.connection import FuseConnection
from bluebridge.guest.fuse.mount import mounted_at, need_fuse
from bluebridge.guest.fuse.tree import Directory

HOME = Path("/run/bluebridge")


class Loop(Protocol):
    """The methods of `rtrs.transport.loop.Loop` that serving files needs."""

    def register(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler` when one of `events` comes."""

    def unregister(self, fd: int) -> None:
        """Forget a descriptor."""


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
