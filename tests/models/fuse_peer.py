"""The kernel's side of a FUSE connection, over a socket pair: needs no device and no privilege.

Programs that open, read and write a control file come down to these messages. Each call blocks as
the system call would; calls may come from several threads, and a signal is `interrupt`.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bluebridge.guest.fuse import messages as wire
from bluebridge.guest.fuse.connection import ROOT as ROOT_NODE
from bluebridge.guest.fuse.messages import Opcode
from bluebridge.guest.protocols.krping.control import Commands, ControlFile

TIMEOUT = 20.0
NAME = "control"


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


class Kernel:
    """Sends requests and sorts the answers."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._numbers = itertools.count(2, 2)
        self._pending: dict[int, Pending] = {}
        self._listener = threading.Thread(target=self._answers, daemon=True)
        self._listener.start()
        self.init = self.ask(Opcode.INIT, 0, wire.INIT_IN.pack(wire.MAJOR, 38, 1 << 17, 0)).wait()

    def ask(self, opcode: int, node: int, body: bytes = b"", *, answered: bool = True) -> Pending:
        """Send one request; not `answered` are those the protocol leaves without an answer."""
        pending = Pending(next(self._numbers))
        if answered:
            self._pending[pending.unique] = pending
        size = wire.IN_HEADER.size + len(body)
        header = wire.IN_HEADER.pack(size, opcode, pending.unique, node, 0, 0, os.getpid(), 0)
        self._socket.send(header + body)
        return pending

    def lookup(self, name: str = NAME) -> int:
        """The inode of a name; `FileNotFoundError`."""
        answer = self.ask(Opcode.LOOKUP, ROOT_NODE, name.encode() + b"\0").wait()
        return int(wire.ENTRY_OUT.unpack_from(answer)[0])

    def attributes(self, node: int) -> tuple[int, ...]:
        """stat, in the order of `bluebridge.guest.fuse.messages.ATTR`."""
        answer = self.ask(Opcode.GETATTR, node, bytes(16)).wait()
        return wire.ATTR.unpack_from(answer, wire.ATTR_OUT.size)

    def open(self) -> tuple[int, int]:
        """Look the file up and open it: inode and handle."""
        node = self.lookup()
        answer = self.ask(Opcode.OPEN, node, struct.pack("=II", os.O_RDWR, 0)).wait()
        handle, flags, _ = wire.OPEN_OUT.unpack(answer)
        assert flags == wire.OPEN_DIRECT_IO
        return node, handle

    def begin_write(self, text: str) -> Pending:
        """A program writes one line; it goes on when the answer comes."""
        node, handle = self.open()
        data = text.encode() + b"\n"
        body = wire.RW_IN.pack(handle, 0, len(data), 0, 0, os.O_WRONLY, 0) + data
        return self.ask(Opcode.WRITE, node, body)

    def write(self, text: str) -> int:
        """Write one line and wait; the count of bytes taken, or `OSError`."""
        return int(wire.WRITE_OUT.unpack(self.begin_write(text).wait())[0])

    def interrupt(self, pending: Pending) -> None:
        """A signal for the program that waits for this answer."""
        body = wire.INTERRUPT_IN.pack(pending.unique)
        self.ask(Opcode.INTERRUPT, 0, body, answered=False)

    def read(self, piece: int = 4096) -> str:
        """Open, read to the end in pieces, close."""
        node, handle = self.open()
        text = b""
        while True:
            body = wire.RW_IN.pack(handle, len(text), piece, 0, 0, os.O_RDONLY, 0)
            part = self.ask(Opcode.READ, node, body).wait()
            assert len(part) <= piece
            text += part
            if not part:
                break
        self.ask(Opcode.RELEASE, node, wire.RELEASE_IN.pack(handle, 0, 0, 0)).wait()
        return text.decode()

    def names(self) -> list[str]:
        answer = self.ask(Opcode.OPENDIR, ROOT_NODE, bytes(8)).wait()
        handle = wire.OPEN_OUT.unpack(answer)[0]
        found: list[str] = []
        offset = 0
        while entries := self._entries(handle, offset):
            while entries:
                _, offset, length, _ = wire.DIRENT.unpack_from(entries)
                start = wire.DIRENT.size
                found.append(entries[start : start + length].decode())
                entries = entries[start + ((length + 7) & ~7) :]
        return found

    def close(self) -> None:
        """Take the last answers of a file that is closed by now."""
        self._listener.join(5)
        self._socket.close()
        assert not self._listener.is_alive()

    def _entries(self, handle: int, offset: int) -> bytes:
        body = wire.RW_IN.pack(handle, offset, 4096, 0, 0, 0, 0)
        return self.ask(Opcode.READDIR, ROOT_NODE, body).wait()

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
