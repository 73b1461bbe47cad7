"""Shared by programs on RTRS: options, signal handlers, files that are served and read."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from bluebridge.device.layout.net.rtrs import DEFAULT_PORT
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.fuse.connection import FuseConnection
from bluebridge.guest.fuse.messages import mounted_at, need_fuse
from bluebridge.guest.fuse.tree import Directory
from bluebridge.guest.ntrdma.back_ends import BACK_END
from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from bluebridge.guest.protocols.rtrs.engine.client.dispatch import POLICIES
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings
from bluebridge.guest.protocols.rtrs.transport.interfaces import (
    FORM,
    Interfaces,
    open_interfaces,
    parse_interface,
)
from bluebridge.guest.protocols.rtrs.transport.loop import Loop

HOME = Path("/run/bluebridge")

CLOSE_SECONDS = 40.0
"""The seconds that a program waits for the peer when it ends."""


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


def _add_file_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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


def _add_interface_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interface",
        action="append",
        required=True,
        metavar=FORM,
        help="an address on a port of an HCA, such as 00:03.0/1=10.9.0.1/24, or of NTRDMA, such as "
        f"ntrdma:ntb+cpu=10.9.2.1/24 (back end unless told: {BACK_END}); may be repeated",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="default 1234")


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a server: sizes that clients are told, and how chunks are guarded."""
    parser.set_defaults(wait_for_peer=False)
    parser.add_argument("--queue-depth", type=int, default=128, help="chunks (default 128)")
    parser.add_argument(
        "--max-chunk-size", type=int, default=1 << 17, metavar="BYTES", help="default 131072"
    )
    parser.add_argument(
        "--always-invalidate",
        choices=("yes", "no"),
        default="yes",
        help="whether a chunk's key ends before the chunk is read (default yes)",
    )


def _add_client_options(parser: argparse.ArgumentParser) -> None:
    """Declare session, paths and policy; over NTRDMA a client waits for its peer."""
    parser.set_defaults(wait_for_peer=True)
    parser.add_argument("--session", default="bluebridge", help="its name (default bluebridge)")
    parser.add_argument(
        "--path",
        action="append",
        required=True,
        metavar="[SOURCE@]DESTINATION",
        help="addresses of a path; may be repeated",
    )
    parser.add_argument("--policy", choices=POLICIES, default="min-inflight")
    parser.add_argument(
        "--reconnect-attempts", type=int, default=-1, help="of a path; -1: without end (default)"
    )
    parser.add_argument(
        "--reconnect-delay",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="between two attempts (default 1; the kernel's RNBD client waits for 30)",
    )


def program_parser(
    name: str, description: str | None, server_help: str, client_help: str
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return the parser of a program on RTRS, and those of its commands `server` and `client`."""
    parser = argparse.ArgumentParser(
        prog=f"python3 -m bluebridge.guest.protocols.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    server = commands.add_parser("server", help=server_help)
    client = commands.add_parser("client", help=client_help)
    for command in (server, client):
        _add_interface_options(command)
    _add_server_options(server)
    _add_client_options(client)
    _add_file_commands(commands)
    return parser, server, client


def run_program(name: str, given: argparse.Namespace) -> int:
    """Run `given.run(given, interfaces, loop)`, or a command on files; returns the exit status.

    The status is 1 after one line for what failed, 2 for a wrong call.
    """
    if hasattr(given, "file"):
        try:
            status: int = given.file(given)
        except OSError as error:
            print(f"{error.filename}: {error.strerror}", file=sys.stderr)
            return 1
        return status
    run: Callable[[argparse.Namespace, Interfaces, Loop], int] = given.run
    try:
        words = [parse_interface(word) for word in given.interface]
        with Loop() as loop, open_interfaces(words, given.wait_for_peer) as interfaces:
            return run(given, interfaces, loop)
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{name}: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except (DeviceError, MemoryError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


def paths_of(given: argparse.Namespace) -> list[AddressPair]:
    """Parse the values of `--path`; a leading `ip:` of an address is dropped."""
    pairs = []
    for word in given.path:
        source, _, destination = word.rpartition("@")
        pairs.append(AddressPair(source.removeprefix("ip:"), destination.removeprefix("ip:")))
    return pairs


def server_settings(given: argparse.Namespace) -> ServerSettings:
    """Return a server's settings; raises `ValueError` for invalid numbers."""
    return ServerSettings(
        queue_depth=given.queue_depth,
        max_chunk_size=given.max_chunk_size,
        always_invalidate=given.always_invalidate == "yes",
    )


def client_settings(given: argparse.Namespace) -> ClientSettings:
    """Return a session's settings; raises `ValueError` for invalid numbers."""
    return ClientSettings(
        port=given.port,
        cpus=os.cpu_count() or 1,
        reconnect_delay=given.reconnect_delay,
        mp_policy=given.policy,
        max_reconnect_attempts=given.reconnect_attempts,
    )


@contextlib.contextmanager
def on_signals(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` at SIGINT and SIGTERM while the context is entered."""

    def called(_number: int, _frame: FrameType | None) -> None:
        action()

    before = {number: signal.signal(number, called) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
