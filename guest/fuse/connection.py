"""A server of a tree on a connection to the kernel's FUSE."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.guest.fuse import messages as wire
from bluebridge.guest.fuse.messages import Opcode
from bluebridge.guest.fuse.tree import Answer, Directory, File, Link, Node, find

ROOT = 1
TreePath = tuple[str, ...]

MAX_WRITE = 4096
BUFFER = 1 << 16
_UNKNOWN_INODE = 0xFFFFFFFF
"""The inode number in directory entries, whose inodes nobody has looked up."""


class Inodes:
    """The inodes: a directory keeps one number, a file gets another at each look-up.

    The kernel holds the lock of an inode while it writes to it, so one inode could not serve
    several writers that each wait for an answer.
    """

    def __init__(self) -> None:
        self._paths: dict[int, TreePath] = {ROOT: ()}
        self._directories: dict[TreePath, int] = {}
        self._lookups: dict[int, int] = {}
        self._last = ROOT

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, number: int) -> TreePath:
        """Return the path that an inode number stands for; raises `KeyError`."""
        return self._paths[number]

    def looked_up(self, path: TreePath, *, directory: bool) -> int:
        """Return the number for a path, counted until it is forgotten as often."""
        number = self._directories.get(path) if directory else None
        if number is None:
            self._last += 1
            number = self._last
            self._paths[number] = path
            if directory:
                self._directories[path] = number
        self._lookups[number] = self._lookups.get(number, 0) + 1
        return number

    def forget(self, number: int, lookups: int) -> None:
        """Take back `lookups` look-ups, which the kernel forgets."""
        left = self._lookups.get(number, 0) - lookups
        if number == ROOT or number not in self._lookups:
            return
        if left > 0:
            self._lookups[number] = left
            return
        del self._lookups[number]
        path = self._paths.pop(number)
        if self._directories.get(path) == number:
            del self._directories[path]


@dataclass(slots=True)
class Handle:
    """An open file or directory, with the content that was taken when reading began."""

    path: TreePath
    text: bytes | None = None
    names: list[tuple[str, Node]] | None = None


class FuseConnection:
    """A server of the tree `root` on the connection `fd`, which it owns from now on.

    `fd` is what `mount` gives: non-blocking, a request for each read, an answer for each write.
    """

    def __init__(self, fd: int, root: Directory) -> None:
        self._fd = fd
        self._root = root
        self._inodes = Inodes()
        self._handles: dict[int, Handle] = {}
        self._next_handle = 0
        self._answers: dict[int, Answer] = {}
        self._handlers: dict[int, Callable[[int, int, bytes], bytes | int | None]] = {
            Opcode.INIT: self._init,
            Opcode.LOOKUP: self._lookup,
            Opcode.GETATTR: self._getattr,
            Opcode.SETATTR: self._getattr,
            Opcode.READLINK: self._readlink,
            Opcode.OPEN: self._open,
            Opcode.READ: self._read,
            Opcode.WRITE: self._write,
            Opcode.RELEASE: self._release,
            Opcode.RELEASEDIR: self._release,
            Opcode.INTERRUPT: self._interrupt,
            Opcode.STATFS: self._statfs,
            Opcode.OPENDIR: self._opendir,
            Opcode.READDIR: self._readdir,
            Opcode.FORGET: self._forget,
            Opcode.BATCH_FORGET: self._batch_forget,
            Opcode.FLUSH: self._fine,
            Opcode.ACCESS: self._fine,
            Opcode.DESTROY: self._fine,
        }

    def fileno(self) -> int:
        """The connection's descriptor, readable when there is a request."""
        return self._fd

    def on_readable(self) -> bool:
        """Handle one request; False when the file system was unmounted."""
        try:
            request = os.read(self._fd, BUFFER)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return True  # the request was interrupted before it could be read
            if error.errno == errno.ENODEV:
                return False
            raise
        if request:
            self._dispatch(request)
        return bool(request)

    def interrupt_all(self) -> None:
        """Interrupt every write that has no answer."""
        for answer in list(self._answers.values()):
            answer.interrupt()

    def close(self) -> None:
        """Close the connection; writers that still wait for an answer get EINTR."""
        for answer in list(self._answers.values()):
            answer.done(errno.EINTR)
        os.close(self._fd)

    def _dispatch(self, request: bytes) -> None:
        """Handle one request; a handler gives data, an errno, or None to answer later or never."""
        _, opcode, unique, node, *_ = wire.IN_HEADER.unpack_from(request)
        handler = self._handlers.get(opcode, self._unknown)
        try:
            answer = handler(unique, node, request[wire.IN_HEADER.size :])
        except OSError as error:
            answer = error.errno or errno.EIO
        if isinstance(answer, int):
            self._reply(unique, b"", answer)
        elif answer is not None:
            self._reply(unique, answer)

    def _reply(self, unique: int, data: bytes, error: int = 0) -> None:
        """Answer a request; a reader that was killed meanwhile is no error."""
        header = wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(data), -error, unique)
        with contextlib.suppress(OSError):
            os.write(self._fd, header + data)

    def _node(self, number: int) -> Node:
        return find(self._root, self._path(number))

    def _path(self, number: int) -> TreePath:
        try:
            return self._inodes.path(number)
        except KeyError:
            raise OSError(errno.ESTALE, f"inode {number}") from None

    # -- one method per request ------------------------------------------------------------

    def _init(self, unique: int, node: int, body: bytes) -> bytes | int:
        major, minor, readahead, _ = wire.INIT_IN.unpack_from(body)
        if major < wire.MAJOR:
            return errno.EPROTO
        minor = min(minor, wire.MINOR)
        return wire.INIT_OUT.pack(wire.MAJOR, minor, readahead, 0, 64, 48, MAX_WRITE, 1, 0, 0, 0)

    def _lookup(self, unique: int, node: int, body: bytes) -> bytes:
        path = (*self._path(node), os.fsdecode(body.rstrip(b"\0")))
        found = find(self._root, path)
        number = self._inodes.looked_up(path, directory=isinstance(found, Directory))
        return wire.ENTRY_OUT.pack(number, 0, 0, 0, 0, 0) + _attributes(number, found)

    def _getattr(self, unique: int, node: int, body: bytes) -> bytes:
        return wire.ATTR_OUT.pack(0, 0, 0) + _attributes(node, self._node(node))

    def _readlink(self, unique: int, node: int, body: bytes) -> bytes | int:
        found = self._node(node)
        return os.fsencode(found.target) if isinstance(found, Link) else errno.EINVAL

    def _open(self, unique: int, node: int, body: bytes) -> bytes | int:
        found = self._node(node)
        if not isinstance(found, File):
            return errno.EISDIR
        mode = wire.OPEN_IN.unpack_from(body)[0] & os.O_ACCMODE
        if (mode != os.O_WRONLY and not found.read) or (mode != os.O_RDONLY and not found.write):
            return errno.EACCES
        return self._opened(Handle(self._path(node)), wire.OPEN_DIRECT_IO)

    def _opened(self, handle: Handle, flags: int) -> bytes:
        self._next_handle += 1
        self._handles[self._next_handle] = handle
        return wire.OPEN_OUT.pack(self._next_handle, flags, 0)

    def _read(self, unique: int, node: int, body: bytes) -> bytes | int:
        number, offset, size, *_ = wire.RW_IN.unpack_from(body)
        handle = self._handles.get(number)
        if handle is None:
            return errno.EBADF
        if offset == 0 or handle.text is None:
            # Taken once, so that a reader in pieces sees whole lines.
            found = self._opened_file(handle.path)
            handle.text = os.fsencode(found.read()) if found.read is not None else b""
        return handle.text[offset : offset + size]

    def _write(self, unique: int, node: int, body: bytes) -> int | None:
        number, _, size, *_ = wire.RW_IN.unpack_from(body)
        data = body[wire.RW_IN.size : wire.RW_IN.size + size]
        handle = self._handles.get(number)
        if handle is None:
            return errno.EBADF
        found = self._opened_file(handle.path)
        if found.write is None:
            return errno.EACCES

        def send(error: int) -> None:
            self._answers.pop(unique, None)
            self._reply(unique, b"" if error else wire.WRITE_OUT.pack(len(data), 0), error)

        answer = self._answers[unique] = Answer(send)
        try:
            found.write(data, answer)
        except OSError as error:
            answer.done(error.errno or errno.EIO)
        return None

    def _opened_file(self, path: TreePath) -> File:
        """Return an open file; raises `OSError` with ENODEV if it has gone, as in sysfs."""
        try:
            found = find(self._root, path)
        except OSError:
            raise OSError(errno.ENODEV, "/".join(path)) from None
        if not isinstance(found, File):
            raise OSError(errno.ENODEV, "/".join(path))
        return found

    def _interrupt(self, unique: int, node: int, body: bytes) -> None:
        (target,) = wire.INTERRUPT_IN.unpack_from(body)
        answer = self._answers.get(target)
        if answer is not None:
            answer.interrupt()

    def _release(self, unique: int, node: int, body: bytes) -> int:
        self._handles.pop(wire.RELEASE_IN.unpack_from(body)[0], None)
        return 0

    def _statfs(self, unique: int, node: int, body: bytes) -> bytes:
        return wire.STATFS_OUT.pack(0, 0, 0, 1, 0, 4096, 255, 4096, 0)

    def _opendir(self, unique: int, node: int, body: bytes) -> bytes | int:
        found = self._node(node)
        if not isinstance(found, Directory):
            return errno.ENOTDIR
        names: list[tuple[str, Node]] = [(".", found), ("..", found), *found.children().items()]
        return self._opened(Handle(self._path(node), names=names), 0)

    def _readdir(self, unique: int, node: int, body: bytes) -> bytes | int:
        number, offset, size, *_ = wire.RW_IN.unpack_from(body)
        handle = self._handles.get(number)
        if handle is None or handle.names is None:
            return errno.EBADF
        entries = b""
        for position, (name, found) in enumerate(handle.names[offset:], offset + 1):
            raw = os.fsencode(name)
            kind = stat.S_IFMT(found.full_mode) >> 12
            head = wire.DIRENT.pack(_UNKNOWN_INODE, position, len(raw), kind)
            entry = head + raw.ljust((len(raw) + 7) & ~7, b"\0")
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries

    def _forget(self, unique: int, node: int, body: bytes) -> None:
        self._inodes.forget(node, wire.FORGET_IN.unpack_from(body)[0])

    def _batch_forget(self, unique: int, node: int, body: bytes) -> None:
        count, _ = wire.BATCH_FORGET_IN.unpack_from(body)
        start = wire.BATCH_FORGET_IN.size
        for number, lookups in wire.FORGET_ONE.iter_unpack(
            body[start : start + count * wire.FORGET_ONE.size]
        ):
            self._inodes.forget(number, lookups)

    def _fine(self, unique: int, node: int, body: bytes) -> int:
        return 0

    def _unknown(self, unique: int, node: int, body: bytes) -> int:
        return errno.ENOSYS


def _attributes(number: int, node: Node) -> bytes:
    links = 2 if isinstance(node, Directory) else 1
    mode, size = node.full_mode, node.size
    return wire.ATTR.pack(number, size, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)
