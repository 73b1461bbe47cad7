"""Virtual doorbells of this side: words that the peer counts up, and who looks at them."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.ntrdma.port import DOORBELLS, FIRST_DYNAMIC_BELL
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport


class Observer:
    """Looks at bell `index`; `wake` is to be called when it has rung."""

    def __init__(self, words: memoryview, index: int, wake: Callable[[], None]) -> None:
        self.index = index
        self.wake = wake
        self._words = words
        self._seen: int = words[index]

    def fires(self) -> bool:
        """Whether it has rung since the last time: one load, so that a ring behind it counts."""
        rung: int = self._words[self.index]
        if rung == self._seen:
            return False
        self._seen = rung
        return True

    def restart(self) -> None:
        """The bells begin anew."""
        self._seen = 0


class Bells:
    """The array of bells and its observers."""

    def __init__(self, transport: Transport) -> None:
        self._memory = transport.map(4 * DOORBELLS)
        self.address = self._memory.address
        self._words = self._memory.view.cast("I")
        self._observers: dict[int, Observer] = {}
        self._last = bytes(4 * DOORBELLS)
        self._span = 0
        """Bytes of the array that somebody looks at."""

    def observe(self, wake: Callable[[], None], index: int | None = None) -> Observer:
        """Have an observer look at a bell, by default at a free one. Raises `MemoryError`."""
        if index is None:
            places = range(FIRST_DYNAMIC_BELL, DOORBELLS)
            index = next((n for n in places if n not in self._observers), None)
            if index is None:
                raise MemoryError("no virtual doorbell is left")
        observer = Observer(self._words, index, wake)
        self._observers[index] = observer
        self._span = 4 * (max(self._observers) + 1)
        return observer

    def forget(self, observer: Observer) -> None:
        """Stop looking at the bell."""
        del self._observers[observer.index]
        self._span = 4 * (max(self._observers, default=-1) + 1)

    @property
    def rung(self) -> bool:
        """Whether any bell has rung since `serve` looked."""
        return bytes(self._memory.view[: self._span]) != self._last

    def serve(self) -> None:
        """Wake all observers whose bell has rung.

        A ring that comes while one is woken is found by the next call.
        """
        self._last = bytes(self._memory.view[: self._span])
        woken = [observer for observer in self._observers.values() if observer.fires()]
        for observer in woken:
            if self._observers.get(observer.index) is not observer:
                continue  # forgotten by one that was woken before
            observer.wake()

    def restart(self) -> None:
        """Set all bells to 0 for a peer that begins anew."""
        self._memory.view[:] = bytes(len(self._memory.view))
        self._last = b""
        for observer in self._observers.values():
            observer.restart()

    def close(self) -> None:
        """Give the array back."""
        self._words.release()
        self._memory.free()
