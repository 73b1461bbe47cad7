"""Sending of frames: each goes into the next of the empty buffers that the peer has given."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.ethernet import DROPPED
from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.frame_memory import BUFFER, LENGTH, FrameMemory
from bluebridge.guest.protocols.ntrdma.engine.indices import advanced, distance, valid
from bluebridge.guest.protocols.ntrdma.engine.memory import Ring, Words
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import CorruptRing
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

MOST_UNDER_WAY = 128
"""The number of stores under way above which frames wait."""


class FrameSender:
    """The peer's buffers, which it writes here, and `sources`, each free when its copy is done."""

    def __init__(
        self, transport: Transport, words: Words, peer: Peer, sources: FrameMemory
    ) -> None:
        self.buffers = Ring(transport, ETHERNET_CAPACITY, BUFFER.size)
        self.produced = words.allocate()
        self.frames = self.dropped = self.bursts = 0
        self.throttled = False
        """True if frames wait only for stores to be carried out."""
        self._transport, self._peer = transport, peer
        self._sources = sources
        self._source = 0
        self._tickets = [0] * sources.count
        """The ticket up to which the transport must have come before a source is free again."""
        self._done = 0
        self._lengths = Ring(transport, ETHERNET_CAPACITY, LENGTH.size)
        self._told = self.used = self._known = 0

    def restart(self, start: int = 0) -> None:
        """Forget the buffers of the peer, whose ring stands at index `start`."""
        self._told = self.used = self._known = start
        self.throttled = False
        self.produced.set(start)

    @property
    def stopped(self) -> bool:
        """Return True if the peer has no buffer for a frame; raises `CorruptRing`."""
        if self.used == self._known:
            produced = self.produced.get()
            if not valid(self.used, produced, ETHERNET_CAPACITY):
                raise CorruptRing
            self._known = produced
        return self.used == self._known

    def space(self) -> memoryview | None:
        """Return the memory for the next frame, None when it has to wait; raises `CorruptRing`."""
        if self.stopped:
            return None
        posted = self._transport.posted
        ticket = max(self._tickets[self._source], posted - MOST_UNDER_WAY)
        if self._done < ticket:
            self._done = self._transport.done
        self.throttled = self._done < ticket
        return None if self.throttled else self._sources.views[self._source]

    def send(self, length: int) -> None:
        """Send the frame in `space`, or drop it when it is too long for the peer's buffer."""
        at = self.used
        address, room = BUFFER.unpack(self.buffers.entry(at))
        transport = self._transport
        if length <= room and transport.reaches(address, length):
            transport.copy(self._sources.addresses[self._source], address, length)
            self._tickets[self._source] = transport.posted
            self._source = (self._source + 1) % self._sources.count
            self.frames += 1
        else:
            length = DROPPED
            self.dropped += 1
        self._lengths.put(at, LENGTH.pack(length))
        self.used = advanced(at, 1, ETHERNET_CAPACITY)

    def tell(self) -> None:
        """Tell the peer about the frames of a burst."""
        count = distance(self._told, self.used, ETHERNET_CAPACITY)
        if count:
            there = self._peer.ethernet
            self._lengths.push(there.completions, self._told, count)
            self._told = self.used
            self._peer.publish(there.consumed, self.used, there.bell)
            self.bursts += 1
