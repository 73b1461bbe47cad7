"""The requests of a client in flight, one for each permit that is in use."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bluebridge.guest.protocols.rnbd.engine.interface import Requester
from bluebridge.guest.protocols.rtrs.engine.actions import Direction
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

RETRY_SECONDS = 0.01
"""The seconds after which a request is started again for which RTRS had no room.

The kernel's client waits as long.
"""
_AGAIN = (errno.EAGAIN, errno.ENOMEM)


class Flight(Protocol):
    """A request of a client that was started, or will be."""

    permit: Permit
    direction: Direction
    length: int

    def message(self) -> bytes:
        """Return the user message."""

    def finished(self, errno: int, now: float) -> None:
        """Note that the flight is over."""


class Flights:
    """Starts requests and reports their ends."""

    def __init__(self, rtrs: Requester) -> None:
        self._rtrs = rtrs
        self._by_slot: dict[int, Flight] = {}
        self._again: deque[tuple[float, Flight]] = deque()

    def __len__(self) -> int:
        return len(self._by_slot) + len(self._again)

    @property
    def deadline(self) -> float | None:
        """Return the time at which `expire` has something to do, None for never."""
        return self._again[0][0] if self._again else None

    def start(self, flight: Flight, now: float) -> None:
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


@dataclass(slots=True)
class AdminFlight:
    """A message about session or device, on connection 0; `length` bytes are the answer's."""

    permit: Permit
    direction: Direction
    length: int
    user: bytes
    answered: Callable[[AdminFlight, int, float], None]

    def message(self) -> bytes:
        """Return the user message."""
        return self.user

    def finished(self, errno: int, now: float) -> None:
        """Give the answer to the function that waits for it."""
        self.answered(self, errno, now)


@dataclass(slots=True)
class WaitingMessage:
    """A message about session or device that waits for a permit."""

    direction: Direction
    length: int
    user: bytes
    answered: Callable[[AdminFlight, int, float], None]

    def with_permit(self, permit: Permit) -> AdminFlight:
        """Return the flight of this message, which has its permit now."""
        return AdminFlight(permit, self.direction, self.length, self.user, self.answered)
