"""The network of one life of a side of NTRDMA's world: frames are known by their number."""

from __future__ import annotations

import hashlib
import random
import struct

from bluebridge.guest.protocols.ntrdma.engine.ethernet import Ethernet

FRAME_BYTES = 120
FRAME_COUNT = 8
_HEAD = struct.Struct("<IQ2x")
"""The sender's life, the frame's number."""
_SHORTEST, _LONGEST_PART = _HEAD.size, FRAME_BYTES - _HEAD.size


def frame_of(life: int, number: int) -> bytes:
    """The frame of a number: its length and bytes are the same wherever they are asked for."""
    seed = hashlib.sha512(_HEAD.pack(life, number)).digest() * 2
    return _HEAD.pack(life, number) + seed[: seed[0] % (_LONGEST_PART + 1)]


class Frames:
    """`Network` that sends numbered frames, and holds those that come against what they must be."""

    frame_bytes = FRAME_BYTES
    frame_count = FRAME_COUNT

    def __init__(self, chance: random.Random) -> None:
        self.life = chance.getrandbits(32)
        self.sent = self.received = 0
        self.carrier: list[bool] = []
        self._peers: dict[int, int] = {}
        """Each life of the peer's, in order, with the number of the last frame from it."""

    def receive(self, frame: memoryview) -> None:
        """It is whole, newer than all before it, and not of a life that has ended."""
        life, number = _HEAD.unpack_from(frame)
        assert bytes(frame) == frame_of(life, number), f"frame {number} has other bytes"
        if life in self._peers:
            assert life == list(self._peers)[-1], f"frame {number} is of a peer that has died"
            assert number > self._peers[life], f"frame {number} comes twice"
        self._peers[life] = number
        self.received += 1

    def set_carrier(self, up: bool) -> None:
        """It is only noted."""
        self.carrier.append(up)

    def post(self, ethernet: Ethernet | None, most: int) -> int:
        """Send up to so many frames, as the peer has buffers; how many."""
        assert ethernet is not None
        for count in range(most):
            space = ethernet.space()
            if space is None:
                return count
            self.sent += 1
            frame = frame_of(self.life, self.sent)
            space[: len(frame)] = frame
            ethernet.send(len(frame))
        return most
