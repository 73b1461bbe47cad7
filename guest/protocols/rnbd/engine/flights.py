"""Requests of a client in flight: one for each permit that is in use."""

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
"""RTRS had no memory or no room in a queue: the kernel's client asks again that much later."""
_AGAIN = (errno.EAGAIN, errno.ENOMEM)


class Flight(Protocol):
    """A request that was started, or will be."""

    permit: Permit
    direction: Direction
    length: int

    def message(self) -> bytes:
        """The user message."""

    def finished(self, errno: int, now: float) -> None:
        """Note that the flight is over."""


class Flights:
    """Starts requests and tells them when they are over."""

    def __init__(self, rtrs: Requester) -> None:
        self._rtrs = rtrs
        self._by_slot: dict[int, Flight] = {}
        self._again: deque[tuple[float, Flight]] = deque()

    def __len__(self) -> int:
        return len(self._by_slot) + len(self._again)

    @property
    def deadline(self) -> float | None:
        """The time at which `expire` has something to do; None: never."""
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
        """RTRS finished the request of a slot."""
        flight = self._by_slot.pop(slot, None)
        if flight is not None:
            flight.finished(errno, now)

    def expire(self, now: float) -> None:
        """Start again what RTRS had no room for."""
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
        """The user message."""
        return self.user

    def finished(self, errno: int, now: float) -> None:
        """Hand it to who waits for the answer."""
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
