"""How many worlds a test runs, and how one that failed is run again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

SECONDS = "BLUEBRIDGE_WORLDS"
"""Environment: the seconds that each test has for its worlds; without it a test runs all of its."""

Result = TypeVar("Result")


def seconds() -> float:
    """The time that a test has for its worlds. Raises `ValueError`."""
    text = os.environ.get(SECONDS, "")
    try:
        return float(text or "inf")
    except ValueError:
        raise ValueError(f"{SECONDS}={text}: say seconds for each test, such as 2") from None


def each(
    name: str, run: Callable[[int], Result], seeds: Iterable[int], least: int = 1
) -> list[Result]:
    """Run the world of each seed, `least` of them even if there is no time left.

    The failure of one carries the command that runs its seed alone.
    """
    end, results = time.monotonic() + seconds(), list[Result]()
    for seed in seeds:
        if len(results) >= least and time.monotonic() > end:
            break
        try:
            results.append(run(seed))
        except BaseException as error:
            error.add_note(f"again: python -m tests.world {name} --seed {seed}")
            raise
    return results
