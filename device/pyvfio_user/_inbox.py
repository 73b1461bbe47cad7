"""Bytes and descriptors that a client has sent and that are not handled yet.

All of the client's descriptors are received. If a receive has no room for descriptors, the kernel
discards and closes them within that call, which takes as long as the owner of the file wants.
"""

from __future__ import annotations

import array
import errno
import socket
from typing import Final

from ._files import MOST_FILES, RECEIVING, Closer

LARGEST: Final = 65536
"""Bytes of the largest message; the queue of every socket holds that many."""
BUFFER: Final = 16384
"""Bytes received at once; this bounds the work before other sockets are served."""
_INT: Final = array.array("i").itemsize
_CUT: Final = int(socket.MSG_CTRUNC)  # a plain number: the enumeration's `&` takes a microsecond
_SPACE: Final = socket.CMSG_SPACE(MOST_FILES * _INT)


class Inbox:
    """The messages of one client from `start` to `end` of `data`; the last may be incomplete.

    The caller handles one or several and then calls `handled`.
    """

    def __init__(self, client: socket.socket, closer: Closer) -> None:
        self.data = bytearray(LARGEST)
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0
        self.held = False
        """Whether nothing was received because too many descriptors wait to be closed."""
        self._closer = closer
        self._receive = client.recvmsg_into
        self._whole = (self.view[:BUFFER],)
        self._files: list[tuple[int, list[int]]] = []
        """For each piece of data with descriptors, the offset of its end and the descriptors."""

    def receive(self, needed: int) -> int:
        """Receive what has arrived, and so much that a first message of `needed` bytes has room.

        Return how many bytes came: 0 when the client has hung up. Raises BlockingIOError when
        nothing is there, or when too many descriptors of this client wait to be closed; OSError
        when the client is to be dropped.
        """
        self.held = self._closer.busy and self._closer.full()
        if self.held:
            raise BlockingIOError(errno.EAGAIN, "too many of its descriptors wait to be closed")
        if self.start == self.end:
            self.start = self.end = 0
            into = self._whole
        else:
            self._move_to_front()
            into = (self.view[self.end : max(BUFFER, needed)],)
        count, ancillary, flags, _ = self._receive(into, _SPACE, RECEIVING)
        self.end += count
        if ancillary:
            self._keep(ancillary)
        if flags & _CUT:
            raise OSError(errno.EMFILE, "a descriptor for which there is no room")
        return count

    def handled(self, end: int) -> list[int]:
        """Forget the data in front of `end`; return the descriptors that came with it.

        A piece of data brings its descriptors with the last message that has bytes in it.
        """
        self.start = end
        files: list[int] = []
        while self._files and self._files[0][0] <= end:
            files += self._files.pop(0)[1]
        return files

    def close(self) -> None:
        """Close the descriptors of messages that nobody will handle any more."""
        self._closer.close(self.handled(self.end))

    def _move_to_front(self) -> None:
        start = self.start
        if start:
            self.data[: self.end - start] = self.data[start : self.end]
            self._files = [(end - start, files) for end, files in self._files]
            self.start, self.end = 0, self.end - start

    def _keep(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        """Keep the descriptors that came; raises OSError when one message has too many."""
        files = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files.frombytes(content[: len(content) - len(content) % _INT])
        kept = sum(len(each) for _, each in self._files)
        self._files.append((self.end, list(files)))
        if kept and kept + len(files) > MOST_FILES:
            raise OSError(errno.ETOOMANYREFS, f"more than {MOST_FILES} descriptors in a message")
