"""The attempts to connect a broken path anew (rtrs-clt.c: rtrs_clt_reconnect_work)."""

from __future__ import annotations

import random

from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings


class Retries:
    """The count of attempts since the path was connected.

    `refused` is set when the server is not the one that it was: there are no more attempts until
    `ask` is called.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._delay = settings.reconnect_delay
        self._jitter = settings.timing.jitter
        self._attempts = 0
        self._at_once = False
        self.refused = False

    def ask(self) -> None:
        """Allow a connection at once, and all attempts again."""
        self._attempts = 0
        self._at_once = True
        self.refused = False

    def succeeded(self) -> None:
        """Count the attempts anew, since the path is connected."""
        self._attempts = 0

    def delay(self, source: random.Random) -> float | None:
        """Return the seconds until `next` is to be called, None for at once."""
        return None if self._at_once else self._delay + source.random() * self._jitter

    def next(self, most: int) -> bool:
        """Count one more attempt; returns False if there is none, `most` -1 being no limit."""
        self._at_once = False
        if self.refused or 0 <= most <= self._attempts:
            return False
        self._attempts += 1
        return True
