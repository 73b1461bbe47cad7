"""The Ethernet device of an engine: frames of a network interface cross the bridge."""

from __future__ import annotations

import struct
from typing import Protocol

from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY
from bluebridge.device.layout.ntrdma.work import DROPPED
from bluebridge.guest.ntrdma.engine.memory import Ring, Words, advanced, distance, valid
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.remote_pair import CorruptRing
from bluebridge.guest.ntrdma.engine.transport import Transport

BUFFER = struct.Struct("<QQ")
"""The form of an empty buffer, FRAME_BUFFER: address, length."""
LENGTH = struct.Struct("<Q")
"""The form of a frame's completion, FRAME_COMPLETION."""
SMALLEST_FRAME = 14
"""The least length of a frame: the header of Ethernet."""
_LINE = 64
_PIECE_BYTES = 1 << 20
"""The size of a piece of memory: large contiguous memory is scarce."""

FILLED_AT_ONCE = 4
"""The part of all buffers that must be empty before the peer is given them: a quarter."""

MOST_UNDER_WAY = 128
"""The number of stores under way above which frames wait."""

DELIVERED_AT_ONCE = 64
"""The most frames of the peer that are delivered in one turn."""


class FrameMemory:
    """`count` pieces of memory, each for a frame of `size` bytes; raises `MemoryError`."""

    def __init__(self, transport: Transport, size: int, count: int) -> None:
        self.size = size
        self.count = count
        stride = -(-size // _LINE) * _LINE
        self.addresses: list[int] = []
        self.views: list[memoryview] = []
        together = max(1, _PIECE_BYTES // stride)
        while len(self.views) < count:
            pieces = min(together, count - len(self.views))
            memory = transport.map(pieces * stride, _LINE)
            for start in range(0, pieces * stride, stride):
                self.addresses.append(memory.address + start)
                self.views.append(memory.view[start : start + size])


class FrameReceiver:
    """The ring of buffers, their use by turns, and the ring of lengths that the peer writes.

    The bytes of a frame that was taken are the peer's again with the next `fill`.
    """

    def __init__(
        self, transport: Transport, words: Words, peer: Peer, buffers: FrameMemory
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


class Network(Protocol):
    """The network interface whose frames cross the bridge."""

    @property
    def frame_bytes(self) -> int:
        """The length of the longest frame, its header included."""

    @property
    def frame_count(self) -> int:
        """The number of buffers per direction, a power of two up to `ETHERNET_CAPACITY`."""

    def receive(self, frame: memoryview) -> None:
        """Take a frame that has come; its bytes are valid until this returns."""

    def set_carrier(self, up: bool) -> None:
        """Note that the peer's interface is present, or has gone."""


class Ethernet:
    """The Ethernet device: frames in both directions.

    A frame is sent by `space` and `send`; `tell` ends a burst of them.
    """

    def __init__(self, transport: Transport, words: Words, peer: Peer, network: Network) -> None:
        size, count = network.frame_bytes, network.frame_count
        assert count & (count - 1) == 0 and 4 <= count <= ETHERNET_CAPACITY
        self.receiver = FrameReceiver(transport, words, peer, FrameMemory(transport, size, count))
        self.sender = FrameSender(transport, words, peer, FrameMemory(transport, size, count))
        self._rung = False
        self._peer = peer
        self._network = network
        self.broken = ""
        """The reason to disconnect from the peer, if there is one."""

    def rang(self) -> None:
        """Note that the peer has sent frames, or given back buffers."""
        self._rung = True

    @property
    def due(self) -> bool:
        """Return True if frames may have come that are not delivered."""
        return self._rung and self.ready

    @property
    def ready(self) -> bool:
        """True if the peer has an interface."""
        return self._peer.ready and self._peer.ethernet.there

    @property
    def wants_frames(self) -> bool:
        """Return True if a frame could be sent now; else wait for a bell, or for stores."""
        return self.ready and self.space() is not None

    def space(self) -> memoryview | None:
        """Return the memory for the next frame; None when it has to wait."""
        if not self.ready:
            return None
        try:
            return self.sender.space()
        except CorruptRing:
            self.broken = "the peer's index of Ethernet buffers cannot be"
            return None

    def send(self, length: int) -> None:
        """Send the frame in `space`."""
        self.sender.send(length)

    def serve(self) -> bool:
        """Deliver frames that came and return buffers; True if there is more to do."""
        if not self.due:
            return False
        try:
            frames = self.receiver.take(DELIVERED_AT_ONCE)
        except CorruptRing:
            self._rung = False
            self.broken = "the peer's index of Ethernet frames cannot be"
            return True
        for frame in frames:
            self._network.receive(frame)
        self.receiver.fill()  # the frames' memory is the peer's again
        self._rung = self.receiver.more
        return self._rung

    def tell(self) -> None:
        """Tell the peer about the frames of a burst."""
        if self.ready:
            self.sender.tell()

    # -- with the port --------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin with empty rings."""
        self._rung, self.broken = False, ""
        self.receiver.restart()
        self.sender.restart()

    def enabled(self) -> None:
        """Note that the peer is ready."""
        if self.ready:
            self._rung = True
            self.receiver.fill()
            self._network.set_carrier(True)

    def quiescing(self) -> None:
        """Switch the carrier off, since the peer is being parted from."""
        self._rung = self.sender.throttled = False
        self._network.set_carrier(False)
