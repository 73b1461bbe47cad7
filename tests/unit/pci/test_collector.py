"""The server's garbage collector looks at new objects only, and circles are freed nevertheless."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from bluebridge.device.pci import collector


class _Circle:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    """The collector as in the server; afterwards as before."""
    thresholds = gc.get_threshold()
    collector.start()
    yield
    gc.callbacks.pop()
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_stays_is_put_aside() -> None:
    before = gc.get_freeze_count()
    kept = [[number] for number in range(100_000)]
    assert gc.get_freeze_count() - before > len(kept) // 2
    assert len(gc.get_objects()) < len(kept) // 2


def test_new_circles_are_freed_by_themselves() -> None:
    last = weakref.ref(_Circle())
    kept = [[number] for number in range(100_000)]
    assert last() is None, len(kept)


def test_circles_that_were_put_aside_are_freed_after_many_were_discarded() -> None:
    circles = [_Circle() for _ in range(10)]
    one = weakref.ref(circles[0])
    gc.collect()  # they survive it
    circles.clear()
    gc.collect()
    assert one() is not None
    for _ in range(collector.MANY):
        collector.discarded()
    gc.collect()
    assert one() is None
