"""`python3 -m bluebridge.guest.protocols.krping.control`: a file that works like /proc/krping.

Writing a command to it runs the command in a thread and blocks the writer until it ends; Ctrl-C
of the writer ends it. Several may run at once. Reading gives a line of statistics for each.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import ipaddress
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.fuse.connection import FuseConnection
from bluebridge.guest.fuse.messages import mounted, need_fuse
from bluebridge.guest.fuse.tree import Answer, File, directory
from bluebridge.guest.protocols.krping.host import Host, host_of, on_signals, open_hca
from bluebridge.guest.protocols.krping.option_string import OptionError, parse
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.providers import add_provider_options, open_chosen

FILE_SIZE = 1 << 16
FILE_MODE = 0o666

DEFAULT_PATH = "/run/krping"
NAME = "control"


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

    `fd` is what `bluebridge.guest.fuse.messages.mounted` gives.
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
        command = data.decode("utf-8", "replace")

        def run() -> None:
            answer.done(self._commands.write(command, answer.on_interrupt))

        writer = threading.Thread(target=run, daemon=True)
        self._writers = [other for other in self._writers if other.is_alive()]
        self._writers.append(writer)
        writer.start()


class KrpingCommands:
    """The `Commands` that run on a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def read(self) -> str:
        """Return the nine columns of every running thread."""
        self._host.log.note("proc read called...")
        return self._host.statistics()

    def write(self, command: str, running: Callable[[Callable[[], None]], None]) -> int:
        """Run one command: EINVAL for a wrong one, EINTR when interrupted, EIO when it failed."""
        text = command.strip().strip("\0")
        self._host.log.note(f"proc write |{text}|")
        try:
            parse(text)
        except OptionError as error:
            self._host.log.note(str(error))
            return errno.EINVAL
        result = self._host.run(text, lambda thread: running(thread.cancel))
        if result.cancelled:
            return errno.EINTR
        return 0 if result.ok else errno.EIO


@contextlib.contextmanager
def placed(path: Path) -> Iterator[int]:
    """Mount the file system, and put the file in place at `path`; taken away afterwards.

    Gives the descriptor for a `ControlFile`. Who opens the file meanwhile waits until it is served.
    The file system is on a hidden directory beside `path`, which becomes a link to the file in it,
    since a file system is mounted on a directory. Raises `OSError`.
    """
    directory = path.with_name(f".{path.name}")
    if path.exists() and not path.is_symlink():
        reason = f"{path} is another file: remove it; write to it once it is a link (test -L)"
        raise FileExistsError(errno.EEXIST, reason)
    directory.mkdir(mode=0o755, exist_ok=True)
    try:
        with mounted(directory, "krping") as connection:
            try:
                path.unlink(missing_ok=True)
                path.symlink_to(directory / NAME)
                yield connection
            finally:
                path.unlink(missing_ok=True)
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()


def main(arguments: list[str] | None = None) -> int:
    """Serve the file until SIGINT or SIGTERM; exit status 1 when that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python3 -m bluebridge.guest.protocols.krping.control", description=__doc__
    )
    parser.add_argument("--ip", required=True, help="this HCA's address")
    parser.add_argument("--path", default=DEFAULT_PATH, help=f"default {DEFAULT_PATH}")
    parser.add_argument("--log", help="append the log lines to this file, too")
    parser.add_argument("--debug", action="store_true", help="log every step of every iteration")
    add_provider_options(parser)
    given = parser.parse_args(arguments)
    try:
        ipaddress.ip_address(given.ip)
        need_fuse()
        # Ahead of the device, for which a script does not wait: it would make a plain file.
        with placed(Path(given.path)) as connection, ExitStack() as owned:
            closing = owned.enter_context(ExitStack())
            closing.callback(os.close, connection)
            log = Log(path=given.log, debugging=given.debug)
            owned.callback(log.close)
            device = open_chosen(given, lambda: open_hca(open_bus()), wait=False)
            host = host_of(device, given.ip, log)
            owned.callback(host.close)
            file = ControlFile(connection, NAME, KrpingCommands(host))
            closing.pop_all()
            owned.callback(file.close)
            on_signals(file.stop)
            log.note(f"write commands to {given.path}")
            file.serve()
    except (OSError, ValueError, DeviceError, MemoryError) as error:
        print(f"krping: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
