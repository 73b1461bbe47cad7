"""Lines of progress on standard error: each step and its duration."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """One line of progress."""
    print(f"images: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a step at its start and its time in seconds at its end."""
    say(f"{text} ...")
    start = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - start:.1f} s")
