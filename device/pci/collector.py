"""Keeps Python's garbage collector from examining the same long-lived objects repeatedly.

A full collection examines every object in the process: with 2^19 memory regions that takes half a
second, in which no guest is served. So objects that have survived one are put aside (`gc.freeze`),
and later collections examine new objects only. Objects put aside that become circular garbage are
found when all objects are examined again: after `MANY` objects were discarded, and after every
`WHOLE` collections.
"""

from __future__ import annotations

import gc

THRESHOLDS = (700, 10, 2)
"""Thresholds of `gc.set_threshold`: a full collection for every 23,000 objects that stay.

It then takes some milliseconds.
"""
WHOLE = 1000
MANY = 4096
"""Number of discarded objects, of some kilobytes each, after which all objects are examined."""
RESET = 512
"""Estimated number of objects that a function discards when it is reset.

Its queue pairs are not counted, since they are not circular.
"""

_collections = 0
_discarded = 0


def start() -> None:
    """Start to put long-lived objects aside: those that exist now, and later ones that stay."""
    gc.collect()
    gc.freeze()
    # Full collections begin when a quarter of what the last one left is new: that is little now.
    gc.collect()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_collected)


def discarded(count: int = 1) -> None:
    """Note that `count` objects have become garbage, which may be circular and put aside."""
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
