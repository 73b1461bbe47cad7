"""The virtual doorbells of this side: words that the peer counts up, and which of them rang."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.port import DOORBELLS, FIRST_DYNAMIC_BELL
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport


class Bells:
    """The array of bells, of which those are looked at that somebody observes, by number."""

    def __init__(self, transport: Transport) -> None:
        self.memory = transport.map(4 * DOORBELLS)
        self.address = self.memory.address
        self.words = self.memory.view.cast("I")
        self._seen: dict[int, int] = {}
        self.last = bytes(4 * DOORBELLS)
        self.span = 0
        """The bytes of the array that are looked at."""

    def observe(self, index: int | None = None) -> int:
        """Look at a bell, by default a free one, from now on; returns it. Raises `MemoryError`."""
        if index is None:
            places = range(FIRST_DYNAMIC_BELL, DOORBELLS)
            index = next((n for n in places if n not in self._seen), None)
            if index is None:
                raise MemoryError("no virtual doorbell is left")
        self._seen[index] = self.words[index]
        self.span = 4 * (max(self._seen) + 1)
        return index

    def forget(self, index: int) -> None:
        """Look at a bell no longer."""
        del self._seen[index]
        self.span = 4 * (max(self._seen, default=-1) + 1)

    @property
    def rung(self) -> bool:
        """Return True if any bell has rung since the last `take`."""
        return bytes(self.memory.view[: self.span]) != self.last

    def take(self) -> list[int]:
        """Return the bells that have rung, each by one load: a later ring counts again.

        A ring that comes while they are answered is found by the next call.
        """
        self.last = bytes(self.memory.view[: self.span])
        # The bell of commands is loaded last: whoever sees a send sees the commands before it.
        return [index for index in reversed(self._seen) if self._fires(index)]

    def _fires(self, index: int) -> bool:
        rung: int = self.words[index]
        if rung == self._seen[index]:
            return False
        self._seen[index] = rung
        return True

    def restart(self) -> None:
        """Set all bells to 0 for a peer that begins anew."""
        self.memory.view[:] = bytes(len(self.memory.view))
        self.last = b""
        for index in self._seen:
            self._seen[index] = 0

    def close(self) -> None:
        """Free the array."""
        self.words.release()
        self.memory.free()
