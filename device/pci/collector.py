"""Python's collector of circular garbage, kept from looking at the same objects time and again.

A full collection looks at every object there is: half a second for 2^19 memory regions, in which
nobody is served. So what has survived one is put aside (`gc.freeze`), and later ones see new
objects only. Objects put aside that become circular garbage are found when all are looked at again:
after `MANY` objects were discarded, and after every `WHOLE` collections.
"""

from __future__ import annotations

import gc

THRESHOLDS = (700, 10, 2)
"""A full collection every 23,000 objects that stay (`gc.set_threshold`): some milliseconds."""
WHOLE = 1000
MANY = 4096
"""Discarded objects of some kilobytes each."""
RESET = 512
"""What a function discards when it is reset; an estimate. Its queue pairs are no circles."""

_collections = 0
_discarded = 0


def start() -> None:
    """Put aside what exists now, which lives as long as the process, and what stays from now on."""
    gc.collect()
    gc.freeze()
    # Full collections begin when a quarter of what the last one left is new: that is little now.
    gc.collect()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_collected)


def discarded(count: int = 1) -> None:
    """Objects that may be parts of circles, and may have been put aside, are garbage now."""
    global _discarded
    _discarded += count
    if _discarded >= MANY:
        _discarded = 0
        gc.unfreeze()


def _collected(phase: str, info: dict[str, int]) -> None:
    global _collections
    if phase == "stop" and info["generation"] == 2:
        _collections += 1
        if _collections % WHOLE:
            gc.freeze()
        else:
            gc.unfreeze()
