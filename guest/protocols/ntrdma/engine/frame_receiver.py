"""Reception of frames: the peer gets empty buffers, fills them and reports the lengths."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.frame_memory import (
    BUFFER,
    LENGTH,
    SMALLEST_FRAME,
    FrameMemory,
)
from bluebridge.guest.protocols.ntrdma.engine.indices import advanced, distance
from bluebridge.guest.protocols.ntrdma.engine.memory import Ring, Words
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import CorruptRing
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

FILLED_AT_ONCE = 4
"""The part of all buffers that must be empty before the peer is given them: a quarter."""


class FrameReceiver:
    """The ring of buffers, their use by turns, and the ring of lengths that the peer writes.

    The bytes of a frame that was taken are the peer's again with the next `fill`.
    """

    def __init__(
        self,
        transport: Transport,
        words: Words,
        peer: Peer,
        buffers: FrameMemory,
    ) -> None:
        self.lengths = Ring(transport, ETHERNET_CAPACITY, LENGTH.size)
        self.consumed = words.allocate()
        self.frames = self.dropped = 0
        self._peer = peer
        self._buffers = buffers
        self.more = False
        """True if more frames had come than the last `take` returned."""
        self._entries = Ring(transport, ETHERNET_CAPACITY, BUFFER.size)
        for position in range(ETHERNET_CAPACITY):
            address = buffers.addresses[position % buffers.count]
            self._entries.put(position, BUFFER.pack(address, buffers.size))
        self._given = self.taken = 0

    def restart(self) -> None:
        """Begin anew for a peer that has no buffers of this side."""
        self._given = self.taken = 0
        self.consumed.set(0)

    def take(self, most: int) -> list[memoryview]:
        """Return at most `most` of the frames that came. Raises `CorruptRing`."""
        index = self.consumed.get()
        arrived = distance(self.taken, index, ETHERNET_CAPACITY)
        given = distance(self.taken, self._given, ETHERNET_CAPACITY)
        if index >= 2 * ETHERNET_CAPACITY or arrived > given:
            raise CorruptRing
        self.more = arrived > most
        frames: list[memoryview] = []
        for _ in range(min(arrived, most)):
            at = self.taken
            (length,) = LENGTH.unpack(self.lengths.entry(at))
            self.taken = advanced(at, 1, ETHERNET_CAPACITY)
            if SMALLEST_FRAME <= length <= self._buffers.size:
                frames.append(self._buffers.views[at % self._buffers.count][:length])
            else:
                self.dropped += 1
        self.frames += len(frames)
        return frames

    def fill(self) -> None:
        """Give the peer the empty buffers, if there are enough of them."""
        given = distance(self.taken, self._given, ETHERNET_CAPACITY)
        empty = self._buffers.count - given
        there = self._peer.ethernet
        if empty * FILLED_AT_ONCE < self._buffers.count:
            return
        self._entries.push(there.buffers, self._given, empty)
        self._given = advanced(self._given, empty, ETHERNET_CAPACITY)
        self._peer.publish(there.produced, self._given, there.send_bell)
