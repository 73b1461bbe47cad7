"""The virtual doorbells of this side: words that the peer counts up, and their observers."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.ntrdma.port import DOORBELLS, FIRST_DYNAMIC_BELL
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport


class Observer:
    """The observer of bell `index`, which calls `wake` when it has rung."""

    def __init__(self, words: memoryview, index: int, wake: Callable[[], None]) -> None:
        self.index = index
        self.wake = wake
        self.words = words
        self._seen: int = words[index]

    def fires(self) -> bool:
        """Return True if the bell has rung since the last call.

        It is one load, so that a later ring counts again.
        """
        rung: int = self.words[self.index]
        if rung == self._seen:
            return False
        self._seen = rung
        return True

    def restart(self) -> None:
        """Start from 0 like the bells."""
        self._seen = 0


class Bells:
    """The array of bells and its observers."""

    def __init__(self, transport: Transport) -> None:
        self.memory = transport.map(4 * DOORBELLS)
        self.address = self.memory.address
        self.words = self.memory.view.cast("I")
        self._observers: dict[int, Observer] = {}
        self.last = bytes(4 * DOORBELLS)
        self.span = 0
        """The bytes of the array that observers look at."""

    def observe(self, wake: Callable[[], None], index: int | None = None) -> Observer:
        """Add an observer of a bell, by default of a free one; raises `MemoryError`."""
        if index is None:
            places = range(FIRST_DYNAMIC_BELL, DOORBELLS)
            index = next((n for n in places if n not in self._observers), None)
            if index is None:
                raise MemoryError("no virtual doorbell is left")
        observer = Observer(self.words, index, wake)
        self._observers[index] = observer
        self.span = 4 * (max(self._observers) + 1)
        return observer

    def forget(self, observer: Observer) -> None:
        """Remove an observer."""
        del self._observers[observer.index]
        self.span = 4 * (max(self._observers, default=-1) + 1)

    @property
    def rung(self) -> bool:
        """Return True if any bell has rung since the last `serve`."""
        return bytes(self.memory.view[: self.span]) != self.last

    def serve(self) -> None:
        """Wake all observers whose bell has rung.

        A ring that comes while one is woken is found by the next call.
        """
        self.last = bytes(self.memory.view[: self.span])
        # The bell of commands is loaded last: whoever sees a send sees the commands before it.
        woken = [each for each in reversed(self._observers.values()) if each.fires()]
        for observer in woken:
            if self._observers.get(observer.index) is not observer:
                continue  # forgotten by one that was woken before
            observer.wake()

    def restart(self) -> None:
        """Set all bells to 0 for a peer that begins anew."""
        self.memory.view[:] = bytes(len(self.memory.view))
        self.last = b""
        for observer in self._observers.values():
            observer.restart()

    def close(self) -> None:
        """Free the array."""
        self.words.release()
        self.memory.free()
