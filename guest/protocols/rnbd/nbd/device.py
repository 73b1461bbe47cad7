"""One block device: carries requests of the kernel from a socket to the engine and back.

Several requests are in flight, one for each permit. While there is no permit the socket is not
read, so requests wait in the kernel.
"""

from __future__ import annotations

import errno
import select
import socket
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from bluebridge.device.layout.net.rnbd import SECTOR, IoFlag, Operation
from bluebridge.guest.protocols.rnbd.engine.actions import BlockRequest, ClientDevice, Done
from bluebridge.guest.protocols.rnbd.engine.client import RnbdClient
from bluebridge.guest.protocols.rnbd.nbd.stream import (
    Command,
    CommandFlag,
    NbdRequest,
    RequestStream,
    StreamError,
    pack_reply,
)
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

Handler = Callable[[int], None]
"""The type of a call that takes the events of `select.poll` that came."""

_OPERATION = {
    Command.READ: Operation.READ,
    Command.WRITE: Operation.WRITE,
    Command.FLUSH: Operation.FLUSH,
    Command.TRIM: Operation.DISCARD,
    Command.WRITE_ZEROES: Operation.WRITE_ZEROES,
}
_PIECES = 64
"""The most buffers of one call of sendmsg."""


class Loop(Protocol):
    """The part of `bluebridge.guest.protocols.rtrs.transport.loop.Loop` that a device needs."""

    def register(self, fd: int, events: int, handler: Handler) -> None: ...

    def unregister(self, fd: int) -> None: ...


class NbdDevice:
    """Serves `connection`, the peer of the socket that the kernel has, until it ends.

    `ended` is called when the kernel has closed its end: the device is gone. `step` is called
    after each turn of work, so that whoever runs the engines carries out their actions.
    """

    def __init__(
        self,
        client: RnbdClient,
        device: ClientDevice,
        connection: socket.socket,
        loop: Loop,
        step: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._client = client
        self._device = device
        self._socket = connection
        self._loop = loop
        self._step = step
        self._ended = ended
        self._stream = RequestStream()
        self._waiting: NbdRequest | None = None
        self._writing: tuple[NbdRequest, Permit] | None = None
        self._flights: dict[int, NbdRequest] = {}
        self._next_tag = 0
        self._output: deque[tuple[memoryview, Permit | None]] = deque()
        self._events = 0
        self._open = True
        connection.setblocking(False)
        self._listen()

    @property
    def idle(self) -> bool:
        """True if the kernel waits for no answer."""
        return not (self._flights or self._output or self._waiting or self._writing)

    def close(self) -> None:
        """Free socket and permits; later answers are dropped."""
        if not self._open:
            return
        self._open = False
        self._loop.unregister(self._socket.fileno())
        self._socket.close()
        now = monotonic()
        for _, permit in self._output:
            self._release(permit, now)
        self._output.clear()
        if self._writing is not None:
            self._release(self._writing[1], now)
            self._writing = None

    def done(self, action: Done) -> None:
        """Answer the kernel's request that the engine has finished."""
        request = self._flights.pop(action.tag)
        if not self._open:
            self._release(action.permit, monotonic())
            return
        head = memoryview(pack_reply(request.cookie, action.errno))
        if request.command == Command.READ and not action.errno:
            data = self._client.data(action.permit)[: request.length]
            self._output.append((head, None))
            self._output.append((data, action.permit))
        else:
            self._output.append((head, action.permit))
        self._send()

    def permit_free(self) -> None:
        """Retry the request that waits for a permit."""
        if self._open:
            self._take_requests()
            self._listen()

    def _ready(self, events: int) -> None:
        if events & select.POLLOUT:
            self._send()
        if self._open and events & ~select.POLLOUT:
            self._receive()
        self._step()

    def _receive(self) -> None:
        try:
            count = self._socket.recv_into(self._stream.space())
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._end()
            return
        self._stream.filled(count)
        try:
            self._take_requests()
        except StreamError:
            self._end()
        self._listen()

    def _take_requests(self) -> None:
        while self._open and self._stream.data_complete:
            if self._writing is not None:
                request, permit = self._writing
                self._writing = None
                self._submit(request, permit)
            due = self._waiting or self._stream.next()
            if due is None or not self._start(due):
                return

    def _start(self, request: NbdRequest) -> bool:
        """Start a request; returns False if it waits for a permit, or if no more will come."""
        self._waiting = None
        if request.command == Command.DISC:
            self._end()
            return False
        if request.command not in _OPERATION or self._too_long(request):
            if request.command == Command.WRITE:
                self._stream.skip_data(request.length)
            self._output.append((memoryview(pack_reply(request.cookie, errno.EINVAL)), None))
            self._send()
            return True
        permit = self._client.get_permit(self._device)
        if permit is None:
            self._waiting = request
            return False
        if request.command == Command.WRITE:
            self._writing = request, permit
            self._stream.take_data(self._client.data(permit)[: request.length])
        else:
            self._submit(request, permit)
        return True

    def _too_long(self, request: NbdRequest) -> bool:
        moves_data = request.command in (Command.READ, Command.WRITE)
        return moves_data and request.length > self._client.max_io_size

    def _submit(self, request: NbdRequest, permit: Permit) -> None:
        tag = self._next_tag
        self._next_tag += 1
        self._flights[tag] = request
        operation = _OPERATION[Command(request.command)]
        flags = IoFlag.FUA if request.flags & CommandFlag.FUA else 0
        wanted = BlockRequest(operation, request.offset // SECTOR, request.length, flags)
        self._client.submit(self._device, permit, wanted, tag, monotonic())

    def _send(self) -> None:
        while self._output and self._open:
            pieces = [piece for piece, _ in list(self._output)[:_PIECES]]
            try:
                self._sent(self._socket.sendmsg(pieces, (), socket.MSG_NOSIGNAL))
            except BlockingIOError:
                break
            except OSError:
                self._end()
                return
        self._listen()

    def _sent(self, count: int) -> None:
        """Drop `count` bytes of the output and release permits whose data are sent."""
        now = monotonic()
        while self._output and count >= len(self._output[0][0]):
            piece, permit = self._output.popleft()
            count -= len(piece)
            self._release(permit, now)
        if count:
            piece, permit = self._output[0]
            self._output[0] = piece[count:], permit

    def _release(self, permit: Permit | None, now: float) -> None:
        if permit is not None:
            self._client.release(permit, now)

    def _listen(self) -> None:
        if not self._open:
            return
        events = 0 if self._waiting is not None else select.POLLIN
        events |= select.POLLOUT if self._output else 0
        if events != self._events:
            self._events = events
            self._loop.register(self._socket.fileno(), events, self._ready)

    def _end(self) -> None:
        self.close()
        self._ended()
