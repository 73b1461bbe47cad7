"""Virtual doorbells of this side: words that the peer counts up, and who looks at them."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.ntrdma.port import DOORBELLS, FIRST_DYNAMIC_BELL
from bluebridge.guest.ntrdma.engine.transport import Transport


class Observer:
    """Calls `wake` when bell `index` has rung while it is armed, and is not armed any more then."""

    def __init__(self, words: memoryview, index: int, wake: Callable[[], None]) -> None:
        self.index = index
        self.wake = wake
        self._words = words
        self._seen: int = words[index]
        self._armed = False

    def arm(self) -> bool:
        """Have the next ring wake; True when it rang since the last one: look again instead."""
        rung: int = self._words[self.index]
        if rung != self._seen:
            self._seen = rung
            return True
        self._armed = True
        return False

    def fires(self) -> bool:
        """Whether it is armed and has rung; disarms it then."""
        if not self._armed or self._words[self.index] == self._seen:
            return False
        self._seen = self._words[self.index]
        self._armed = False
        return True

    def restart(self) -> None:
        """The bells begin anew."""
        self._seen = 0
        self._armed = True


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
        """Look at a bell, by default at a free one; armed at once. Raises `MemoryError`."""
        if index is None:
            places = range(FIRST_DYNAMIC_BELL, DOORBELLS)
            index = next((n for n in places if n not in self._observers), None)
            if index is None:
                raise MemoryError("no virtual doorbell is left")
        observer = Observer(self._words, index, wake)
        observer.arm()
        self._observers[index] = observer
        self._span = 4 * (max(self._observers) + 1)
        return observer

    def forget(self, observer: Observer) -> None:
        """Look no longer."""
        del self._observers[observer.index]
        self._span = 4 * (max(self._observers, default=-1) + 1)

    @property
    def rung(self) -> bool:
        """Whether any bell has rung since `serve` looked."""
        return bytes(self._memory.view[: self._span]) != self._last

    def serve(self) -> None:
        """Wake all observers whose bell has rung.

        Each is armed again before it is woken, so a ring in between wakes it once more.
        """
        self._last = bytes(self._memory.view[: self._span])
        woken = [observer for observer in self._observers.values() if observer.fires()]
        for observer in woken:
            if self._observers.get(observer.index) is not observer:
                continue  # forgotten by one that was woken before
            while observer.arm():
                pass  # it rang once more, which this wake serves as well
            observer.wake()

    def restart(self) -> None:
        """All bells are 0 again, for a peer that begins anew."""
        self._memory.view[:] = bytes(len(self._memory.view))
        self._last = b""
        for observer in self._observers.values():
            observer.restart()

    def close(self) -> None:
        """Give the array back."""
        self._words.release()
        self._memory.free()
