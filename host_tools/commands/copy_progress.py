"""The progress of a copy: a line on standard error, where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_AFTER = 1.0
"""The seconds that a copy takes at least before its progress is shown."""
_EVERY = 0.2
_CLEAR = "\r\x1b[K"


class CopyProgress:
    """Shows the progress of a copy; called with the number of bytes of each piece.

    `total` is the size in bytes, or 0 where it is not known.
    """

    def __init__(self, name: str, total: int = 0) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._begin = time.monotonic()
        self._next = self._begin + _AFTER
        self._shown = False

    def __call__(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._show(self.text(now - self._begin))

    def text(self, seconds: float) -> str:
        """Return the bytes copied and their rate after `seconds` as a line of text."""
        done, rate = self._done / 1e6, self._done / 1e6 / max(seconds, 1e-9)
        if not self._total:
            return f"{self._name}: {done:.0f} MB, {rate:.1f} MB/s"
        share = f"{100 * self._done // self._total} %"
        left = (self._total - self._done) / 1e6 / max(rate, 1e-9)
        text = f"{self._name}: {done:.0f} of {self._total / 1e6:.0f} MB ({share}), {rate:.1f} MB/s"
        return f"{text}, {left:.0f} s to go"

    def _show(self, text: str) -> None:
        self._shown = True
        sys.stderr.write(_CLEAR + text)
        sys.stderr.flush()

    def close(self) -> None:
        """Clear the line of progress, so that further output begins in an empty line."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


@contextlib.contextmanager
def of(name: str, total: int = 0) -> Iterator[Callable[[int], None] | None]:
    """Yield the function to call with the size of each piece; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress = CopyProgress(name, total)
    try:
        yield progress
    finally:
        progress.close()
