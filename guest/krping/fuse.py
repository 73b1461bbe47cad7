"""A control file as a FUSE file system, in pure Python: no library, no helper program.

The file system is a directory with one file. Each look-up of the name gives a new inode: the
kernel holds an inode's lock while it writes to it, so one inode could not serve several writers
that each block for as long as their command runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from bluebridge.guest.krping import fuse_messages as wire
from bluebridge.guest.krping.fuse_messages import Opcode

DEVICE = "/dev/fuse"
MAX_WRITE = 4096
BUFFER = 1 << 16
ROOT_NODE = 1
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2
FILE_SIZE = 1 << 16
"""What stat says. The size is unknown before a read; but sendfile, busybox's way to cat, takes
nothing out of an empty file, direct I/O or not. A short read tells the kernel the true size."""
FILE_MODE = stat.S_IFREG | 0o666
DIRECTORY_MODE = stat.S_IFDIR | 0o755
_libc = ctypes.CDLL(None, use_errno=True)


class Commands(Protocol):
    """What stands behind the file."""

    def read(self) -> str:
        """What a reader gets."""

    def write(self, command: str, running: Callable[[Callable[[], None]], None]) -> int:
        """Run a command to its end; 0 or an errno. Hands a function that ends it to `running`."""


class ControlFile:
    """Serves a file system with the file `name` on the connection `fd`, which it owns from now on.

    `fd` is what `mounted` gives: non-blocking, a request for each read, an answer for each write.
    """

    def __init__(self, fd: int, name: str, commands: Commands) -> None:
        self._fd = fd
        self._name = name.encode()
        self._commands = commands
        self._lock = threading.Lock()
        self._cancels: dict[int, Callable[[], None] | None] = {}
        self._interrupted: set[int] = set()
        self._texts: dict[int, bytes] = {}
        self._next_node = ROOT_NODE
        self._next_handle = 0
        self._writers: list[threading.Thread] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._handlers: dict[int, Callable[[int, int, bytes], bytes | int | None]] = {
            Opcode.INIT: self._init,
            Opcode.LOOKUP: self._lookup,
            Opcode.GETATTR: self._getattr,
            Opcode.SETATTR: self._getattr,
            Opcode.OPEN: self._open,
            Opcode.READ: self._read,
            Opcode.WRITE: self._write,
            Opcode.RELEASE: self._release,
            Opcode.INTERRUPT: self._interrupt,
            Opcode.STATFS: self._statfs,
            Opcode.OPENDIR: self._opendir,
            Opcode.READDIR: self._readdir,
            Opcode.FORGET: self._nothing,
            Opcode.BATCH_FORGET: self._nothing,
            Opcode.FLUSH: self._fine,
            Opcode.ACCESS: self._fine,
            Opcode.RELEASEDIR: self._fine,
            Opcode.DESTROY: self._fine,
        }

    def serve(self) -> None:
        """Answer the kernel until `stop` or until the file system is unmounted."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._wake in ready:
                return
            try:
                request = os.read(self._fd, BUFFER)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue  # the request was interrupted before it could be read
                if error.errno == errno.ENODEV:
                    return  # unmounted
                raise
            self._dispatch(request)

    def stop(self) -> None:
        """Make `serve` return; safe in a signal handler."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the running commands, answer their writers, close the connection."""
        with self._lock:
            cancels = [cancel for cancel in self._cancels.values() if cancel is not None]
            writers = list(self._writers)
        for cancel in cancels:
            cancel()
        for writer in writers:
            writer.join()
        os.close(self._fd)
        os.close(self._wake)

    def _dispatch(self, request: bytes) -> None:
        """Handle one request; a handler gives data, an errno, or None to answer later or never."""
        _, opcode, unique, node, *_ = wire.IN_HEADER.unpack_from(request)
        handler = self._handlers.get(opcode, self._unknown)
        answer = handler(unique, node, request[wire.IN_HEADER.size :])
        if isinstance(answer, int):
            self._reply(unique, b"", answer)
        elif answer is not None:
            self._reply(unique, answer)

    def _reply(self, unique: int, data: bytes, error: int = 0) -> None:
        """Answer a request. A reader that was killed meanwhile is no error."""
        header = wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(data), -error, unique)
        with contextlib.suppress(OSError):
            os.write(self._fd, header + data)

    # -- one method per request ------------------------------------------------------------

    def _init(self, unique: int, node: int, body: bytes) -> bytes | int:
        major, minor, readahead, _ = wire.INIT_IN.unpack_from(body)
        if major < wire.MAJOR:
            return errno.EPROTO
        minor = min(minor, wire.MINOR)
        return wire.INIT_OUT.pack(wire.MAJOR, minor, readahead, 0, 64, 48, MAX_WRITE, 1, 0, 0, 0)

    def _lookup(self, unique: int, node: int, body: bytes) -> bytes | int:
        if node != ROOT_NODE or body.rstrip(b"\0") != self._name:
            return errno.ENOENT
        self._next_node += 1
        entry = wire.ENTRY_OUT.pack(self._next_node, 0, 0, 0, 0, 0)
        return entry + self._attributes(self._next_node)

    def _getattr(self, unique: int, node: int, body: bytes) -> bytes:
        return wire.ATTR_OUT.pack(0, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        directory = node == ROOT_NODE
        mode, links, size = (DIRECTORY_MODE, 2, 0) if directory else (FILE_MODE, 1, FILE_SIZE)
        return wire.ATTR.pack(node, size, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)

    def _open(self, unique: int, node: int, body: bytes) -> bytes:
        self._next_handle += 1
        return wire.OPEN_OUT.pack(self._next_handle, wire.OPEN_DIRECT_IO, 0)

    def _read(self, unique: int, node: int, body: bytes) -> bytes:
        handle, offset, size, *_ = wire.RW_IN.unpack_from(body)
        if offset == 0 or handle not in self._texts:
            # Taken once, so that a reader in pieces sees whole lines.
            self._texts[handle] = self._commands.read().encode()
        return self._texts[handle][offset : offset + size]

    def _write(self, unique: int, node: int, body: bytes) -> None:
        _, _, size, *_ = wire.RW_IN.unpack_from(body)
        command = body[wire.RW_IN.size : wire.RW_IN.size + size]
        with self._lock:
            self._cancels[unique] = None
        writer = threading.Thread(target=self._run, args=(unique, command), daemon=True)
        with self._lock:
            self._writers = [other for other in self._writers if other.is_alive()]
            self._writers.append(writer)
        writer.start()

    def _run(self, unique: int, command: bytes) -> None:
        """A writer's thread: the command, then the answer the writer waits for."""

        def running(cancel: Callable[[], None]) -> None:
            with self._lock:
                self._cancels[unique] = cancel
                early = unique in self._interrupted
            if early:
                cancel()

        try:
            error = self._commands.write(command.decode("utf-8", "replace"), running)
        finally:
            with self._lock:
                del self._cancels[unique]
                self._interrupted.discard(unique)
        self._reply(unique, b"" if error else wire.WRITE_OUT.pack(len(command), 0), error)

    def _interrupt(self, unique: int, node: int, body: bytes) -> None:
        (target,) = wire.INTERRUPT_IN.unpack_from(body)
        with self._lock:
            if target not in self._cancels:
                return  # answered already
            self._interrupted.add(target)
            cancel = self._cancels[target]
        if cancel is not None:
            cancel()

    def _release(self, unique: int, node: int, body: bytes) -> int:
        self._texts.pop(wire.RELEASE_IN.unpack_from(body)[0], None)
        return 0

    def _statfs(self, unique: int, node: int, body: bytes) -> bytes:
        return wire.STATFS_OUT.pack(0, 0, 0, 1, 0, 4096, 255, 4096, 0)

    def _opendir(self, unique: int, node: int, body: bytes) -> bytes:
        return wire.OPEN_OUT.pack(0, 0, 0)

    def _readdir(self, unique: int, node: int, body: bytes) -> bytes:
        _, offset, *_ = wire.RW_IN.unpack_from(body)
        if offset:
            return b""
        entry = wire.DIRENT.pack(ROOT_NODE + 1, 1, len(self._name), stat.S_IFREG >> 12)
        return entry + self._name.ljust((len(self._name) + 7) & ~7, b"\0")

    def _nothing(self, unique: int, node: int, body: bytes) -> None:
        return None

    def _fine(self, unique: int, node: int, body: bytes) -> int:
        return 0

    def _unknown(self, unique: int, node: int, body: bytes) -> int:
        return errno.ENOSYS


@contextlib.contextmanager
def mounted(directory: Path) -> Iterator[int]:
    """Mount a FUSE connection on `directory`, an existing empty one, unmount it at the end.

    Gives the descriptor for a `ControlFile`, which closes it. Raises `OSError`.
    """
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _mount(fd, directory)
    except OSError:
        os.close(fd)
        raise
    try:
        yield fd
    finally:
        _libc.umount2(os.fsencode(directory), MNT_DETACH)


def _mount(fd: int, directory: Path) -> None:
    """Mount the connection `fd` on a directory; raises `OSError`."""
    options = f"fd={fd},rootmode={DIRECTORY_MODE:o},user_id=0,group_id=0,allow_other"
    failed = _libc.mount(
        b"krping", os.fsencode(directory), b"fuse.krping", MS_NOSUID | MS_NODEV, options.encode()
    )
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot mount on {directory}: {os.strerror(code)}")
