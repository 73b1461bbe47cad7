"""Progress lines on standard error, each with the seconds since the tool started."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

Progress = Callable[[str], None]


class Reporter:
    """Prints messages of progress to standard error; `Reporter(quiet=True)` prints nothing."""

    def __init__(self, quiet: bool = False) -> None:
        """Start the clock for the seconds in each line."""
        self._quiet = quiet
        self._start = time.monotonic()

    def __call__(self, message: str) -> None:
        """Print one line: the seconds since the start, then `message`."""
        if not self._quiet:
            elapsed = time.monotonic() - self._start
            print(f"[{elapsed:6.1f} s] {message}", file=sys.stderr, flush=True)


def listed(names: Iterable[str]) -> str:
    """Write names for people: `a and b`, `a, b, c and d`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
