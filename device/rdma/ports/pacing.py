"""The rate at which a port's queue pairs offer requests again to receivers that are not ready."""

from __future__ import annotations

from typing import Final

OFFER_SECONDS: Final = 0.00025
"""Seconds per repeated offer, on the average over all waiting queue pairs of a port.

A receiver may ask for one every 10 us, and any number of queue pairs may meet such receivers.
"""


class Pacing:
    """Counts the queue pairs of a port that wait for receivers."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = 0

    def enter(self, seconds: float) -> float:
        """Count one more waiting queue pair; returns its delay, which is at least `seconds`."""
        self._waiting += 1
        return max(seconds, self._waiting * OFFER_SECONDS)

    def leave(self) -> None:
        """Count one waiting queue pair less."""
        self._waiting -= 1
