"""The control file: a file system with one file, whose writers' commands run in threads."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Protocol

from bluebridge.guest.fuse.connection import FuseConnection
from bluebridge.guest.fuse.tree import Answer, File, directory

FILE_SIZE = 1 << 16
FILE_MODE = 0o666


class Commands(Protocol):
    """The commands behind the control file: what its readers and writers cause."""

    def read(self) -> str:
        """Return the text that a reader gets."""

    def write(self, command: str, running: Callable[[Callable[[], None]], None]) -> int:
        """Run a command to its end; returns 0 or an errno.

        `running` gets a function that ends the command.
        """


class ControlFile:
    """A file system with the file `name`, served on the connection `fd`, which it owns.

    `fd` is what `bluebridge.guest.fuse.mount.mounted` gives.
    """

    def __init__(self, fd: int, name: str, commands: Commands) -> None:
        self._commands = commands
        file = File(commands.read, self._write, FILE_SIZE, FILE_MODE)
        self._connection = FuseConnection(fd, directory({name: file}))
        self._writers: list[threading.Thread] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def serve(self) -> None:
        """Answer the kernel until `stop` or until the file system is unmounted."""
        poller = select.poll()
        poller.register(self._connection.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._wake in ready or not self._connection.on_readable():
                return

    def stop(self) -> None:
        """Make `serve` return; safe in a signal handler."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the running commands, answer their writers, close the connection."""
        self._connection.interrupt_all()
        for writer in self._writers:
            writer.join()
        self._connection.close()
        os.close(self._wake)

    def _write(self, data: bytes, answer: Answer) -> None:
        """Run a writer's command in a thread of its own."""
        command = data.decode("utf-8", "replace")

        def run() -> None:
            answer.done(self._commands.write(command, answer.on_interrupt))

        writer = threading.Thread(target=run, daemon=True)
        self._writers = [other for other in self._writers if other.is_alive()]
        self._writers.append(writer)
        writer.start()
