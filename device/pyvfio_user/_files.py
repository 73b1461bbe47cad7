"""Bytes of a client that are not handled yet, and the descriptors that it sends.

A file of a client's choice can do more harm than its bytes: memory that a truncated or full file
no longer has ends the process (SIGBUS), a pipe or a file of a FUSE server blocks whoever writes to
it, and the latter even whoever closes it. So a file is mapped only if it is sealed against that,
and an interrupt goes to an eventfd only. All of the client's descriptors are received: if a receive
has no room for descriptors, the kernel discards and closes them within that call, which takes as
long as the owner of the file wants.
"""

from __future__ import annotations

import _thread
import array
import contextlib
import errno
import fcntl
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

NOT_SEALED: Final = (
    "refused to map memory that can vanish: it must be a memfd with F_SEAL_SHRINK, as QEMU's "
    "memory-backend-memfd is (share=on, seal=on)"
)
NO_EVENTFD: Final = "refused an interrupt that is no eventfd"
MOST_FILES: Final = 253
"""Descriptors that one piece of data can bring at most (SCM_MAX_FD), and one message."""
RECEIVING: Final = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
MOST_PIECES: Final = 8
"""Pieces of data that are taken at most out of a connection before it is closed."""
MOST_WAITING: Final = 64
"""Descriptors of a client that may wait to be closed before more of what it sends is received."""
MOST_LEFT: Final = 8
"""Clients of a socket that may have left behind a thread in a close that takes long."""
MOST_LEFT_WAITING: Final = 256
"""Descriptors that may wait to be closed in the threads that clients left behind."""

LARGEST: Final = 65536
"""Bytes of the largest message; the queue of every socket holds that many."""
BUFFER: Final = 16384
"""Bytes received at once; this bounds the work before other sockets are served."""
_INT: Final = array.array("i").itemsize
_CUT: Final = int(socket.MSG_CTRUNC)  # a plain number: the enumeration's `&` takes a microsecond
_SPACE: Final = socket.CMSG_SPACE(MOST_FILES * _INT)


def memory_fault(fds: Sequence[int], length: int, complain: Callable[[str], None]) -> int:
    """Return the errno to refuse `fds` with as the file of `length` bytes of memory, else 0.

    Only F_GET_SEALS works without the file's file system; so the size is asked after it.
    """
    if not fds:
        return 0
    if len(fds) > 1:
        return errno.EINVAL
    seals = _seals(fds[0])
    if seals < 0 or not seals & fcntl.F_SEAL_SHRINK:
        complain(NOT_SEALED)
        return errno.EINVAL
    return 0 if os.fstat(fds[0]).st_size >= length else errno.EINVAL


def interrupt_fault(fds: Sequence[int], complain: Callable[[str], None]) -> int:
    """Return the errno to refuse `fds` with as interrupts, else 0.

    Writing to accepted descriptors does not block.
    """
    for fd in fds:
        if not _is_eventfd(fd):
            complain(NO_EVENTFD)
            return errno.EINVAL
    for fd in fds:
        os.set_blocking(fd, False)
    return 0


def _seals(fd: int) -> int:
    """Return the F_SEAL_* flags of a file, -1 if it is not memory."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return -1


def _is_eventfd(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventfd]"


class Closer:
    """Closes the files that the clients of one socket have sent, and their connections, in threads.

    The owner of a file can make its close last (a FUSE file, a TCP socket that lingers), the pages
    of memory take a tenth of a second for each GiB, and a connection is closed with whatever its
    client has put into it. Each client has a thread for memory and one for everything else; it
    leaves both behind when it disconnects, so a close that hangs there holds up no other client.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._memory = _Queue()
        self._others = _Queue()
        self._left: list[_Queue] = []
        """Queues of clients that have left."""
        self._on_relief: Callable[[], None] | None = None
        self.busy = False
        """Whether `full` has to be called; reading this attribute is cheaper."""

    def full(self) -> bool:
        """Whether the client must wait until some of its descriptors are closed."""
        waiting = len(self._memory.fds) + len(self._others.fds)
        self.busy = waiting > 0
        return waiting >= MOST_WAITING

    def close(self, fds: Sequence[int]) -> None:
        """Close eventfds at once, which is quick, and other files soon, in a thread."""
        for fd in fds:
            if _seals(fd) >= 0:
                self._put(self._memory, fd)
            elif _is_eventfd(fd):
                os.close(fd)
            else:
                self._put(self._others, fd)

    def close_memory(self, fd: int) -> None:
        """Close the file of memory soon, in a thread; at once if there is no thread left."""
        self._put(self._memory, fd)

    def hang_up(self, client: socket.socket) -> None:
        """End a connection; close it at once if its client has left nothing in it, else soon."""
        with contextlib.suppress(OSError):  # it has ended already
            client.shutdown(socket.SHUT_RDWR)
        if self._emptied(client):
            client.close()
        else:
            self._put(self._others, client.detach())

    def _emptied(self, client: socket.socket) -> bool:
        """Receive what is left in an ended connection; return whether it is empty then."""
        for _ in range(MOST_PIECES):
            try:
                data, files, _, _ = socket.recv_fds(client, 1 << 16, MOST_FILES, RECEIVING)
            except ConnectionError:  # said once, in front of what is there
                continue
            except OSError:
                return False
            self.close(files)
            if not data:
                return True
        return False

    def leave(self) -> None:
        """Leave threads that are closing files to earlier clients, because another client comes."""
        with self._lock:
            if self._memory.running:
                self._left.append(self._memory)
                self._memory = _Queue()
            if self._others.running:
                self._left.append(self._others)
                self._others = _Queue()

    def admits(self, on_relief: Callable[[], None]) -> bool:
        """Return whether another client may connect; else a thread calls `on_relief` later.

        None may while too many connections, or threads of clients that have left, hang.
        """
        with self._lock:
            self._on_relief = None if self._admits() else on_relief
            return self._on_relief is None

    def _admits(self) -> bool:
        if self._others.running and len(self._others.fds) >= MOST_WAITING:
            return False
        self._left = [queue for queue in self._left if queue.running]
        waiting = sum(len(queue.fds) for queue in self._left)
        return len(self._left) < MOST_LEFT and waiting < MOST_LEFT_WAITING

    def _put(self, queue: _Queue, fd: int) -> None:
        """Close `fd` in the thread of `queue`, which is started if need be."""
        with self._lock:
            queue.fds.append(fd)
            self.busy = True
            if queue.running:
                return
            queue.running = True
        try:
            _thread.start_new_thread(self._close, (queue,))  # threading would wait until it runs
        except RuntimeError:  # the machine or the user has no thread left
            queue.running = False
            if queue is self._memory:
                _close_all(queue)

    def _close(self, queue: _Queue) -> None:
        """Close all descriptors of a queue; this function runs as a thread."""
        relief: Callable[[], None] | None = None
        while queue.running:
            _close_all(queue)
            with self._lock:
                queue.running = len(queue.fds) > 0
                if not queue.running and self._on_relief is not None and self._admits():
                    relief, self._on_relief = self._on_relief, None
        if relief is not None:
            relief()


class _Queue:
    """Descriptors to be closed, and whether a thread closes them."""

    def __init__(self) -> None:
        self.fds: deque[int] = deque()
        self.running = False


def _close_all(queue: _Queue) -> None:
    while queue.fds:
        with contextlib.suppress(OSError):  # what its file system says of the end of a file
            os.close(queue.fds.popleft())


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
