"""Sending through BlueFlame: entries are stored into the adapter (lib/qp.c: mlx4_post_send).

What goes this way is what libmlx4 sends this way: a post of one request with inline data, or of one
RDMA READ, whose entry fits into half a register. The device must advertise BlueFlame.

The first drivers that did so made two mistakes, described in docs/blueflame.md.
`BlueFlameUse` has a switch for each, to see on the bus what they do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.uar import BLUEFLAME_LINE, PAGE_SIZE
from bluebridge.device.layout.mlx4.wqe import DS_MASK
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.verbs.enums import WrOpcode
from bluebridge.guest.verbs.values import SendWr

_CONTROL = 16
_STORE = 8


@dataclass(frozen=True, slots=True)
class BlueFlameUse:
    """The use that posting makes of BlueFlame.

    `wrong_page`: the UAR's index is not added, all entries go to the first BlueFlame page (the
    study's listing 4.2). `old_size_rule`: an entry must be smaller than the buffer instead of not
    larger (listing 3.3), which leaves its last 16 bytes unused.
    """

    wrong_page: bool = False
    old_size_rule: bool = False


_USES = {
    "off": None,
    "on": BlueFlameUse(),
    "wrong-page": BlueFlameUse(wrong_page=True),
    "old-size": BlueFlameUse(old_size_rule=True),
}
USES = tuple(_USES)
"""The words for `BlueFlameUse` on command lines."""


def use_of(word: str) -> BlueFlameUse | None:
    """Return the use that a word of `USES` names; raises `ValueError` for any other word."""
    if word not in _USES:
        raise ValueError(f"BlueFlame {word}: choose from {', '.join(USES)}")
    return _USES[word]


class BlueFlame:
    """The first register of one UAR's BlueFlame page: two buffers that are filled in turn.

    Raises `HcaError` when the device does not advertise BlueFlame.
    """

    def __init__(self, bus: Bus, dev_cap: bytes, uar: int, use: BlueFlameUse) -> None:
        if not QUERY_DEV_CAP.get(dev_cap, "blueflame"):
            raise HcaError("the device has no BlueFlame: start it with --blueflame on")
        self._store = bus.write64
        self.buffer = 1 << (QUERY_DEV_CAP.get(dev_cap, "log_bf_reg_size") - 1)
        uar_area = 1 << (QUERY_DEV_CAP.get(dev_cap, "uar_size_code") + 20)
        self._base = uar_area + (0 if use.wrong_page else uar * PAGE_SIZE)
        self._largest = self.buffer - (_CONTROL if use.old_size_rule else 0)
        self._half = 0
        self._lock = threading.Lock()

    def send(self, wr: SendWr, entry: memoryview, qpn: int, index: int) -> bool:
        """Store the only entry of a post into BlueFlame; True when it needs no doorbell any more.

        `entry` is the valid entry in its ring; the number of the queue pair and the 16-bit index of
        the entry are stored where fetched entries have zeros or a VLAN.
        """
        length = (entry[7] & DS_MASK) * _CONTROL
        if not (wr.inline_data or wr.opcode == WrOpcode.RDMA_READ):
            return False
        if not _CONTROL < length <= self._largest:
            return False
        entry[1:3] = (index & 0xFFFF).to_bytes(2, "big")
        entry[4:7] = qpn.to_bytes(3, "big")
        whole = -(-length // BLUEFLAME_LINE) * BLUEFLAME_LINE
        image = bytes(entry[:whole]).ljust(whole, b"\0")
        with self._lock:
            start = self._base + self._half
            for at in range(0, whole, _STORE):
                self._store(2, start + at, int.from_bytes(image[at : at + _STORE], "big"))
            self._half ^= self.buffer
        return True
