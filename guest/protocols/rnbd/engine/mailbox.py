"""The messages about session and devices, sent over connection 0 as soon as there is a permit.

As in the kernel's rnbd-clt.c: send_msg_sess_info, send_msg_open, send_msg_close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import MessageType
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import ClientDevice
from bluebridge.guest.protocols.rnbd.engine.flights import AdminFlight, Flights, WaitingMessage
from bluebridge.guest.protocols.rnbd.engine.interface import Requester, SlotMemory
from bluebridge.guest.protocols.rtrs.engine.actions import Direction
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

Answered = Callable[[int, bytes, float], None]
"""The type of a call that takes errno (0 or positive), the answer, and the time."""


class Mailbox:
    """Sends messages in the order in which they come; `release` gives a permit back."""

    def __init__(
        self,
        rtrs: Requester,
        slots: SlotMemory,
        flights: Flights,
        release: Callable[[Permit, float], None],
    ) -> None:
        self._rtrs = rtrs
        self._slots = slots
        self._flights = flights
        self._release = release
        self._waiting: deque[WaitingMessage] = deque()

    def introduce(self, answered: Answered, now: float) -> None:
        """Send SESS_INFO."""
        user = messages.pack_session(MessageType.SESS_INFO, rnbd.VERSION_MAJOR)
        self._send(Direction.READ, rnbd.SESS_INFO.size, user, answered, now)

    def open(self, device: ClientDevice, answered: Answered, now: float) -> None:
        """Send OPEN for a device."""
        user = messages.pack_open(device.name, device.access)
        self._send(Direction.READ, rnbd.OPEN_RSP.size, user, answered, now)

    def close(self, number: int, answered: Answered, now: float) -> None:
        """Send CLOSE for a device."""
        self._send(Direction.WRITE, 0, messages.pack_close(number), answered, now)

    def clear(self) -> None:
        """Forget the waiting messages of a session that is over."""
        self._waiting.clear()

    def send_next(self, now: float) -> bool:
        """Send the message that waits longest; False if there is none, or no permit."""
        permit = self._rtrs.get_permit(admin=True) if self._waiting else None
        if permit is None:
            return False
        self._flights.start(self._waiting.popleft().with_permit(permit), now)
        return True

    def _send(
        self, direction: Direction, length: int, user: bytes, answered: Answered, now: float
    ) -> None:
        """Send a message, as soon as there is a permit."""

        def over(flight: AdminFlight, error: int, now: float) -> None:
            answer = b"" if error else bytes(self._slots.data(flight.permit.slot)[:length])
            self._release(flight.permit, now)
            answered(error, answer, now)

        self._waiting.append(WaitingMessage(direction, length, user, over))
        self.send_next(now)
