"""Sending through BlueFlame: entries are stored into the adapter in place of a doorbell.

The first drivers that did so made two mistakes, described in docs/blueflame.md.
`BlueFlameUse` has a switch for each, to see on the bus what they do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.device.layout.blueflame import LINE

_SEGMENT = 16
_STORE = 8


@dataclass(frozen=True, slots=True)
class BlueFlameUse:
    """The use that posting makes of BlueFlame.

    `wrong_page`: the UAR's index is not added, all entries go to the first BlueFlame page (the
    study's listing 4.2). `old_size_rule`: an entry must be smaller than the buffer instead of not
    larger (listing 3.3), which leaves its last 16 bytes unused.
    """

    wrong_page: bool = False
    old_size_rule: bool = False


_USES = {
    "off": None,
    "on": BlueFlameUse(),
    "wrong-page": BlueFlameUse(wrong_page=True),
    "old-size": BlueFlameUse(old_size_rule=True),
}
USES = tuple(_USES)
"""The words for `BlueFlameUse` on command lines."""


def use_of(word: str) -> BlueFlameUse | None:
    """Return the use that a word of `USES` names; raises `ValueError` for any other word."""
    if word not in _USES:
        raise ValueError(f"BlueFlame {word}: choose from {', '.join(USES)}")
    return _USES[word]


class BlueFlameRegister:
    """One register: two buffers of `buffer` bytes from `place` in BAR `bar`, filled in turn.

    `store` is the 8-byte store of a bus.
    """

    def __init__(
        self,
        store: Callable[[int, int, int], None],
        bar: int,
        place: int,
        buffer: int,
        use: BlueFlameUse,
    ) -> None:
        self._store = store
        self._bar = bar
        self._place = place
        self.buffer = buffer
        self._largest = buffer - (_SEGMENT if use.old_size_rule else 0)
        self._half = 0
        self._lock = threading.Lock()

    def takes(self, length: int) -> bool:
        """Return whether an entry of `length` bytes goes this way."""
        return _SEGMENT < length <= self._largest

    def store(self, entry: bytes | bytearray | memoryview) -> None:
        """Store an entry in ascending order, in whole lines."""
        whole = -(-len(entry) // LINE) * LINE
        image = bytes(entry).ljust(whole, b"\0")
        with self._lock:
            start = self._place + self._half
            for at in range(0, whole, _STORE):
                self._store(self._bar, start + at, int.from_bytes(image[at : at + _STORE], "big"))
            self._half ^= self.buffer
