"""The bytes of a train as rings want them: with or without VLAN tag, with or without FCS."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from bluebridge.device.layout.net.ethernet import FCS_SIZE, HEADER_SIZE

TAG_SIZE: Final = 4
_TYPE_OFFSET: Final = HEADER_SIZE - 2
_STRIP: Final = 1
_KEEP: Final = 2


def frame_check(frame: bytes) -> bytes:
    """The frame check sequence that a frame has on the wire (IEEE 802.3, 3.2.9)."""
    return crc32(frame).to_bytes(FCS_SIZE, "little")


class TrainForms:
    """Makes each form of the frames of one train once: a group may have a thousand rings."""

    __slots__ = ("_frames", "_made")

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames
        self._made: dict[int, list[bytes]] = {0: frames}

    def frames(self, strip: bool, keep_fcs: bool) -> list[bytes]:
        """The frames; `strip` removes the outermost tag, which must be there.

        `keep_fcs` appends the frame check sequence, which covers the frame with its tag: so it came
        over the wire.
        """
        form = (_STRIP if strip else 0) | (_KEEP if keep_fcs else 0)
        made = self._made.get(form)
        if made is None:
            made = self._made[form] = self._make(strip, keep_fcs)
        return made

    def _make(self, strip: bool, keep_fcs: bool) -> list[bytes]:
        cut = _TYPE_OFFSET + TAG_SIZE
        made = self._frames
        if strip:
            made = [frame[:_TYPE_OFFSET] + frame[cut:] for frame in made]
        if keep_fcs:
            wire = self._frames
            made = [made[at] + frame_check(wire[at]) for at in range(len(wire))]
        return made
