"""The kernel's side of a FUSE connection, over a socket pair: needs no device and no privilege."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from bluebridge.guest.fuse import messages as wire
from bluebridge.guest.fuse.connection import ROOT, FuseConnection
from bluebridge.guest.fuse.messages import Opcode
from bluebridge.guest.fuse.tree import Directory
from bluebridge.guest.protocols.krping.control import Commands, ControlFile

TIMEOUT = 20.0
NAME = "control"


def packed(unique: int, opcode: int, node: int, body: bytes) -> bytes:
    """A request."""
    size = wire.IN_HEADER.size + len(body)
    return wire.IN_HEADER.pack(size, opcode, unique, node, 0, 0, os.getpid(), 0) + body


def io(handle: int, offset: int, size: int) -> bytes:
    """Return what reads and writes begin with."""
    return wire.RW_IN.pack(handle, offset, size, 0, 0, 0, 0)


class FusePeer(ABC):
    """Looks files up by path, opens, reads and closes them as programs do; raises `OSError`."""

    @abstractmethod
    def ask(self, opcode: int, node: int, body: bytes = b"") -> bytes:
        """A request, and the data of its answer."""

    def lookup(self, path: str) -> int:
        """The inode of a path."""
        node = ROOT
        for name in path.split("/") if path else ():
            entry = self.ask(Opcode.LOOKUP, node, os.fsencode(name) + b"\0")
            node = wire.ENTRY_OUT.unpack_from(entry)[0]
        return node

    def mode(self, path: str) -> int:
        answer = self.ask(Opcode.GETATTR, self.lookup(path), bytes(16))
        return int(wire.ATTR.unpack_from(answer, wire.ATTR_OUT.size)[9])

    def open(self, path: str, flags: int) -> tuple[int, int]:
        """Inode and handle."""
        node = self.lookup(path)
        answer = self.ask(Opcode.OPEN, node, wire.OPEN_IN.pack(flags, 0))
        handle, direct, _ = wire.OPEN_OUT.unpack(answer)
        assert direct == wire.OPEN_DIRECT_IO
        return node, int(handle)

    def read(self, path: str, piece: int = 4096) -> str:
        """Everything in a file, in pieces."""
        node, handle = self.open(path, os.O_RDONLY)
        text = b""
        while part := self.read_part(node, handle, len(text), piece):
            assert len(part) <= piece
            text += part
        self.ask(Opcode.RELEASE, node, wire.RELEASE_IN.pack(handle, 0, 0, 0))
        return text.decode()

    def read_part(self, node: int, handle: int, offset: int, size: int) -> bytes:
        return self.ask(Opcode.READ, node, io(handle, offset, size))

    def names(self, path: str, size: int = 4096) -> list[str]:
        """Return what a directory lists besides itself and the one above."""
        node = self.lookup(path)
        handle = wire.OPEN_OUT.unpack(self.ask(Opcode.OPENDIR, node, bytes(8)))[0]
        found: list[str] = []
        offset = 0
        while entries := self.ask(Opcode.READDIR, node, io(handle, offset, size)):
            assert len(entries) <= size
            while entries:
                _, offset, length, _ = wire.DIRENT.unpack_from(entries)
                start = wire.DIRENT.size
                found.append(os.fsdecode(entries[start : start + length]))
                entries = entries[start + ((length + 7) & ~7) :]
        assert found[:2] == [".", ".."]
        return found[2:]

    def readlink(self, path: str) -> str:
        return os.fsdecode(self.ask(Opcode.READLINK, self.lookup(path)))


class TreePeer(FusePeer):
    """The kernel in front of a tree, in one thread.

    A call sends a request, lets the connection handle it, and takes the answer if there is one.
    """

    def __init__(self, root: Directory) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        theirs.setblocking(False)
        self.connection = FuseConnection(theirs.detach(), root)
        self._unique = 0
        self._answers: dict[int, tuple[int, bytes]] = {}
        self._closed = False

    def close(self) -> None:
        """End the connection; answers that come with its end are taken."""
        if not self._closed:
            self._closed = True
            self.connection.close()
            self._take()
            self._socket.close()

    def send(self, opcode: int, node: int, body: bytes = b"") -> int:
        """A request, handled at once; the number to take its answer by."""
        self._unique += 2
        self._socket.send(packed(self._unique, opcode, node, body))
        assert self.connection.on_readable()
        return self._unique

    def answered(self, unique: int) -> bool:
        if not self._closed:
            self._take()
        return unique in self._answers

    def answer(self, unique: int) -> bytes:
        """The answer's data; raises the `OSError` that it carries."""
        assert self.answered(unique), "no answer"
        error, data = self._answers.pop(unique)
        if error:
            raise OSError(error, os.strerror(error))
        return data

    def ask(self, opcode: int, node: int, body: bytes = b"") -> bytes:
        return self.answer(self.send(opcode, node, body))

    def begin_write(self, path: str, text: str) -> int:
        """Write a line to a file; the number to take the answer by."""
        node, handle = self.open(path, os.O_WRONLY)
        data = text.encode()
        return self.send(Opcode.WRITE, node, io(handle, 0, len(data)) + data)

    def write(self, path: str, text: str) -> int:
        """Write a line that is answered at once: 0 or the errno."""
        unique = self.begin_write(path, text)
        try:
            (count, _) = wire.WRITE_OUT.unpack(self.answer(unique))
        except OSError as error:
            return error.errno or -1
        assert count == len(text.encode())
        return 0

    def _take(self) -> None:
        while True:
            try:
                message = self._socket.recv(1 << 17)
            except BlockingIOError:
                return
            if not message:
                return
            size, error, unique = wire.OUT_HEADER.unpack_from(message)
            assert size == len(message) and unique not in self._answers
            self._answers[unique] = -error, message[wire.OUT_HEADER.size :]


@contextmanager
def peer_of(root: Directory) -> Iterator[TreePeer]:
    peer = TreePeer(root)
    yield peer
    peer.close()


class Pending:
    """A request on its way; `unique` is what an interrupt names."""

    def __init__(self, unique: int) -> None:
        self.unique = unique
        self.answered = threading.Event()
        self.error = 0
        self.data = b""

    def wait(self) -> bytes:
        """The answer's data; raises the `OSError` it carries."""
        assert self.answered.wait(TIMEOUT), "no answer came"
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return self.data


class Kernel(FusePeer):
    """The kernel in front of a control file: calls block as the system call would.

    They may come from several threads; a signal is `interrupt`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._numbers = itertools.count(2, 2)
        self._pending: dict[int, Pending] = {}
        self._listener = threading.Thread(target=self._answers, daemon=True)
        self._listener.start()
        self.init = self.ask(Opcode.INIT, 0, wire.INIT_IN.pack(wire.MAJOR, 38, 1 << 17, 0))

    def send(self, opcode: int, node: int, body: bytes = b"") -> Pending:
        """A request; who waits for it gets the answer."""
        pending = Pending(next(self._numbers))
        self._pending[pending.unique] = pending
        self._socket.send(packed(pending.unique, opcode, node, body))
        return pending

    def ask(self, opcode: int, node: int, body: bytes = b"") -> bytes:
        return self.send(opcode, node, body).wait()

    def begin_write(self, text: str) -> Pending:
        """A program writes one line; it goes on when the answer comes."""
        node, handle = self.open(NAME, os.O_RDWR)
        data = text.encode() + b"\n"
        return self.send(Opcode.WRITE, node, io(handle, 0, len(data)) + data)

    def write(self, text: str) -> int:
        """Write one line and wait; the count of bytes taken, or `OSError`."""
        return int(wire.WRITE_OUT.unpack(self.begin_write(text).wait())[0])

    def interrupt(self, pending: Pending) -> None:
        """A signal for the program that waits for this answer; has none of its own."""
        self.send(Opcode.INTERRUPT, 0, wire.INTERRUPT_IN.pack(pending.unique))

    def close(self) -> None:
        """Take the last answers of a file that is closed by now."""
        self._listener.join(5)
        self._socket.close()
        assert not self._listener.is_alive()

    def _answers(self) -> None:
        """A thread: answers as they come, until the file's side hangs up."""
        while message := self._receive():
            size, error, unique = wire.OUT_HEADER.unpack_from(message)
            assert size == len(message)
            pending = self._pending.pop(unique)
            pending.error, pending.data = -error, message[wire.OUT_HEADER.size :]
            pending.answered.set()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""


@contextmanager
def connected(commands: Commands) -> Iterator[Kernel]:
    """The kernel in front of a served control file; ended in the daemon's order."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    file = ControlFile(theirs.detach(), NAME, commands)
    server = threading.Thread(target=file.serve, daemon=True)
    server.start()
    kernel = Kernel(ours)
    yield kernel
    file.stop()
    server.join(5)
    closer = threading.Thread(target=file.close, daemon=True)
    closer.start()
    closer.join(5)
    assert not server.is_alive() and not closer.is_alive()
    kernel.close()
