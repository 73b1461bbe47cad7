"""The requests of a client in flight, one for each permit that is in use."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import SECTOR, MessageType, Operation
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import (
    BlockRequest,
    ClientDevice,
    Done,
    Requester,
)
from bluebridge.guest.protocols.rtrs.engine.actions import Direction
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

RETRY_SECONDS = 0.01
"""The seconds after which a request is started again for which RTRS had no room.

The kernel's client waits as long.
"""
_AGAIN = (errno.EAGAIN, errno.ENOMEM)

_DIRECTION = {
    Operation.READ: Direction.READ,
    Operation.WRITE: Direction.WRITE,
    # The kernel takes the direction from its own number of the operation: that of FLUSH is even.
    Operation.FLUSH: Direction.READ,
    Operation.DISCARD: Direction.WRITE,
    Operation.SECURE_ERASE: Direction.WRITE,
    Operation.WRITE_ZEROES: Direction.WRITE,
}
FLUSH_SECTOR = (1 << 64) - 1
"""The number that the kernel's client sends as the sector of a flush."""

Answered = Callable[[int, bytes, float], None]
"""The type of a call that takes errno (0 or positive), the answer, and the time."""


class Flights:
    """Starts requests and reports their ends."""

    def __init__(self, rtrs: Requester) -> None:
        self._rtrs = rtrs
        self._by_slot: dict[int, IoFlight | AdminFlight] = {}
        self._again: deque[tuple[float, IoFlight | AdminFlight]] = deque()

    @property
    def deadline(self) -> float | None:
        """Return the time at which `expire` has something to do, None for never."""
        return self._again[0][0] if self._again else None

    def start(self, flight: IoFlight | AdminFlight, now: float) -> None:
        """Hand a request to RTRS; `finished` follows, maybe within this call."""
        self._by_slot[flight.permit.slot] = flight
        wrong = self._rtrs.request(
            flight.direction, flight.permit, flight.message(), flight.length, now
        )
        if wrong:
            del self._by_slot[flight.permit.slot]
            if wrong in _AGAIN:
                self._again.append((now + RETRY_SECONDS, flight))
            else:
                flight.finished(wrong, now)

    def finish(self, slot: int, errno: int, now: float) -> None:
        """Take the end of the request in a slot."""
        flight = self._by_slot.pop(slot, None)
        if flight is not None:
            flight.finished(errno, now)

    def expire(self, now: float) -> None:
        """Start the requests again that RTRS had no room for."""
        for _ in range(len(self._again)):
            due, flight = self._again[0]
            if due > now:
                return
            self._again.popleft()
            self.start(flight, now)


class IoFlight:
    """A block request: reads and writes are one part, what moves no data may be several in turn."""

    def __init__(
        self,
        device: ClientDevice,
        permit: Permit,
        request: BlockRequest,
        tag: int,
        flights: Flights,
        done: Callable[[Done], None],
    ) -> None:
        operation = request.operation
        self.device = device
        self.permit = permit
        self.direction = _DIRECTION[operation]
        self.length = request.length if operation <= Operation.WRITE else 0
        self._tag = tag
        self._rw = operation | request.flags
        self._sector = FLUSH_SECTOR if operation == Operation.FLUSH else request.sector
        self._left = request.length
        self._part = _largest_part(device, operation) or self._left
        self._flights = flights
        self._done = done

    def message(self) -> bytes:
        """Return the user message of the part that is due."""
        size = min(self._part, self._left)
        return messages.pack_io(self.device.number, self._sector, self._rw, size)

    def finished(self, errno: int, now: float) -> None:
        """Take the end of a part: start the next one, or end the request."""
        self._left -= min(self._part, self._left)
        if errno or not self._left:
            self._done(Done(self.device, self._tag, self.permit, errno))
        else:
            self._sector += self._part // SECTOR
            self._flights.start(self, now)


def _largest_part(device: ClientDevice, operation: int) -> int:
    """Return the most bytes of a part; 0 means no bound."""
    if operation in (Operation.DISCARD, Operation.SECURE_ERASE):
        return device.geometry.max_discard_sectors * SECTOR
    if operation == Operation.WRITE_ZEROES:
        return device.geometry.max_write_zeroes_sectors * SECTOR
    return 0


class AdminFlight:
    """A message about session or device; `length` bytes of its slot are the answer's."""

    permit: Permit

    def __init__(
        self, mailbox: Mailbox, direction: Direction, length: int, user: bytes, answered: Answered
    ) -> None:
        self.direction = direction
        self.length = length
        self.answered = answered
        self._mailbox = mailbox
        self._user = user

    def message(self) -> bytes:
        """Return the user message."""
        return self._user

    def finished(self, errno: int, now: float) -> None:
        """Give the answer to the function that waits for it."""
        self._mailbox.finished(self, errno, now)


class Mailbox:
    """Sends messages about session and devices, in their order, over connection 0.

    Each waits for a permit, which `release` gives back; `data` returns a slot's memory. As in the
    kernel's rnbd-clt.c: send_msg_sess_info, send_msg_open, send_msg_close.
    """

    def __init__(
        self,
        rtrs: Requester,
        data: Callable[[int], memoryview],
        flights: Flights,
        release: Callable[[Permit, float], None],
    ) -> None:
        self._rtrs = rtrs
        self._data = data
        self._flights = flights
        self._release = release
        self._waiting: deque[AdminFlight] = deque()

    def introduce(self, answered: Answered, now: float) -> None:
        """Send SESS_INFO."""
        user = messages.pack_session(MessageType.SESS_INFO, rnbd.VERSION_MAJOR)
        self._send(AdminFlight(self, Direction.READ, rnbd.SESS_INFO.size, user, answered), now)

    def open(self, device: ClientDevice, answered: Answered, now: float) -> None:
        """Send OPEN for a device."""
        user = messages.pack_open(device.name, device.access)
        self._send(AdminFlight(self, Direction.READ, rnbd.OPEN_RSP.size, user, answered), now)

    def close(self, number: int, answered: Answered, now: float) -> None:
        """Send CLOSE for a device."""
        user = messages.pack_close(number)
        self._send(AdminFlight(self, Direction.WRITE, 0, user, answered), now)

    def clear(self) -> None:
        """Forget the waiting messages of a session that is over."""
        self._waiting.clear()

    def send_next(self, now: float) -> bool:
        """Send the message that waits longest; False if there is none, or no permit."""
        permit = self._rtrs.get_permit(admin=True) if self._waiting else None
        if permit is None:
            return False
        flight = self._waiting.popleft()
        flight.permit = permit
        self._flights.start(flight, now)
        return True

    def finished(self, flight: AdminFlight, errno: int, now: float) -> None:
        """Take the end of a message, whose slot has the answer."""
        answer = b"" if errno else bytes(self._data(flight.permit.slot)[: flight.length])
        self._release(flight.permit, now)
        flight.answered(errno, answer, now)

    def _send(self, flight: AdminFlight, now: float) -> None:
        self._waiting.append(flight)
        self.send_next(now)
