"""The forms of a train's frames that rings ask for: with or without VLAN tag and FCS."""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from bluebridge.device.layout.net.ethernet import HEADER_SIZE

TAG_SIZE: Final = 4
_TYPE_OFFSET: Final = HEADER_SIZE - 2
_STRIP: Final = 1
_KEEP: Final = 2
_FCS: Final = Struct("<I")


class TrainForms:
    """The frames of one train, made once in each form: a group may have a thousand rings."""

    __slots__ = ("_frames", "_made")

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames
        self._made: dict[int, list[bytes]] = {}

    def frames(self, strip: bool, keep_fcs: bool) -> list[bytes]:
        """Return the frames; `strip` removes the outermost tag, which must be there.

        `keep_fcs` appends the frame check sequence (IEEE 802.3, 3.2.9), which covers the frame with
        its tag: so it came over the wire.
        """
        if not (strip or keep_fcs):
            return self._frames
        form = (_STRIP if strip else 0) | (_KEEP if keep_fcs else 0)
        made = self._made.get(form)
        if made is None:
            made = self._made[form] = self._make(strip, keep_fcs)
        return made

    def _make(self, strip: bool, keep_fcs: bool) -> list[bytes]:
        cut, pack = _TYPE_OFFSET + TAG_SIZE, _FCS.pack
        made = []
        for frame in self._frames:
            form = frame + pack(crc32(frame)) if keep_fcs else frame
            made.append(form[:_TYPE_OFFSET] + form[cut:] if strip else form)
        return made
