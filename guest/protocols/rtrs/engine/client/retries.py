"""The attempts to connect a broken path anew (rtrs-clt.c: rtrs_clt_reconnect_work)."""

from __future__ import annotations

import random

from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings


class Retries:
    """Attempts since the path was connected. `refused`: the server is not the one that it was, so
    there are no more attempts unless somebody asks."""

    def __init__(self, settings: ClientSettings) -> None:
        self._delay = settings.reconnect_delay
        self._jitter = settings.timing.jitter
        self._attempts = 0
        self._at_once = False
        self.refused = False

    def ask(self) -> None:
        """Somebody wants the path to connect: at once, and with all attempts."""
        self._attempts = 0
        self._at_once = True
        self.refused = False

    def succeeded(self) -> None:
        """Note that the path is connected."""
        self._attempts = 0

    def delay(self, source: random.Random) -> float | None:
        """Seconds until `next` is to be called; None: now."""
        return None if self._at_once else self._delay + source.random() * self._jitter

    def next(self, most: int) -> bool:
        """Whether there is another attempt; `most` -1: no limit."""
        self._at_once = False
        if self.refused or 0 <= most <= self._attempts:
            return False
        self._attempts += 1
        return True
