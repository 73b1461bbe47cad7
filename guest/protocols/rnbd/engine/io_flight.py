"""One block request in flight, in parts if it is larger than a device takes.

As in the kernel's rnbd-clt.c: rnbd_client_xfer_request.
"""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.net.rnbd import SECTOR, Operation
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import BlockRequest, ClientDevice, Done
from bluebridge.guest.protocols.rnbd.engine.flights import Flights
from bluebridge.guest.protocols.rtrs.engine.actions import Direction
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

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
