"""The kernel's side of a FUSE connection in front of a tree, in one thread.

A call sends a request, lets the connection handle it, and takes the answer if there is one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from bluebridge.guest.fuse import messages as wire
from bluebridge.guest.fuse.connection import ROOT, FuseConnection
from bluebridge.guest.fuse.messages import Opcode
from bluebridge.guest.fuse.tree import Directory


class TreePeer:
    """Looks files up by path, opens, reads, writes and closes them as programs do."""

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
        size = wire.IN_HEADER.size + len(body)
        header = wire.IN_HEADER.pack(size, opcode, self._unique, node, 0, 0, 1, 0)
        self._socket.send(header + body)
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
        """A request that is answered at once."""
        return self.answer(self.send(opcode, node, body))

    def lookup(self, path: str) -> int:
        """The inode of a path; raises `OSError`."""
        node = ROOT
        for name in path.split("/") if path else ():
            entry = self.ask(Opcode.LOOKUP, node, os.fsencode(name) + b"\0")
            node = wire.ENTRY_OUT.unpack_from(entry)[0]
        return node

    def mode(self, path: str) -> int:
        answer = self.ask(Opcode.GETATTR, self.lookup(path), bytes(16))
        return int(wire.ATTR.unpack_from(answer, wire.ATTR_OUT.size)[9])

    def open(self, path: str, flags: int) -> tuple[int, int]:
        """Inode and handle; raises `OSError`."""
        node = self.lookup(path)
        answer = self.ask(Opcode.OPEN, node, wire.OPEN_IN.pack(flags, 0))
        return node, int(wire.OPEN_OUT.unpack(answer)[0])

    def read(self, path: str, piece: int = 4096) -> str:
        """Everything in a file, in pieces; raises `OSError`."""
        node, handle = self.open(path, os.O_RDONLY)
        text = b""
        while part := self.read_part(node, handle, len(text), piece):
            text += part
        self.ask(Opcode.RELEASE, node, wire.RELEASE_IN.pack(handle, 0, 0, 0))
        return text.decode()

    def read_part(self, node: int, handle: int, offset: int, size: int) -> bytes:
        return self.ask(Opcode.READ, node, wire.RW_IN.pack(handle, offset, size, 0, 0, 0, 0))

    def begin_write(self, path: str, text: str) -> int:
        """Write a line to a file; the number to take the answer by."""
        node, handle = self.open(path, os.O_WRONLY)
        data = text.encode()
        return self.send(
            Opcode.WRITE, node, wire.RW_IN.pack(handle, 0, len(data), 0, 0, 0, 0) + data
        )

    def write(self, path: str, text: str) -> int:
        """Write a line that is answered at once: 0 or the errno."""
        unique = self.begin_write(path, text)
        try:
            (count, _) = wire.WRITE_OUT.unpack(self.answer(unique))
        except OSError as error:
            return error.errno or -1
        assert count == len(text.encode())
        return 0

    def names(self, path: str, size: int = 4096) -> list[str]:
        node = self.lookup(path)
        handle = wire.OPEN_OUT.unpack(self.ask(Opcode.OPENDIR, node, bytes(8)))[0]
        found: list[str] = []
        offset = 0
        while entries := self.ask(
            Opcode.READDIR, node, wire.RW_IN.pack(handle, offset, size, 0, 0, 0, 0)
        ):
            assert len(entries) <= size
            while entries:
                _, offset, length, _ = wire.DIRENT.unpack_from(entries)
                start = wire.DIRENT.size
                found.append(os.fsdecode(entries[start : start + length]))
                entries = entries[start + ((length + 7) & ~7) :]
        return [name for name in found if name not in (".", "..")]

    def readlink(self, path: str) -> str:
        return os.fsdecode(self.ask(Opcode.READLINK, self.lookup(path)))

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
