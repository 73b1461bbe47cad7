"""Queue pairs with memory, connected to those of another process by what each tells the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.guest.verbs import AccessFlags, CompletionChannel, Device, QpInit, QpType

LANE_BYTES = 128 << 10
_ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
_DEPTH = 32


@dataclass(frozen=True)
class Far:
    """The other end of a lane: its device in hex, queue pair, memory and key."""

    device: str
    qpn: int
    address: int
    rkey: int


class Lane:
    """One end: a queue pair with a completion queue and `LANE_BYTES` of registered memory."""

    def __init__(self, device: Device, channel: CompletionChannel | None = None) -> None:
        self._device = device
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(4 * _DEPTH, channel)
        self.qp = self.pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, _DEPTH, _DEPTH))
        self.memory = device.allocate(LANE_BYTES)
        self.mr = self.pd.reg_mr(self.memory.address, LANE_BYTES, access=_ACCESS)
        self.far = Far("", 0, 0, 0)

    def connect(self, far: Far) -> None:
        """To RTS."""
        self.far = far
        self.qp.modify_init(_ACCESS)
        there = self._device.address_vector(bytes.fromhex(far.device))
        self.qp.modify_rtr(there, far.qpn)
        self.qp.modify_rts()

    def words(self) -> list[object]:
        """The fields of `Far` for this end."""
        return [self._device.address.hex(), self.qp.qpn, self.memory.address, self.mr.rkey]

    def close(self) -> None:
        """Give everything back."""
        self.qp.destroy()
        self.cq.destroy()
        self.mr.close()
        self.memory.free()
        self.pd.close()


def told(lanes: Sequence[Lane]) -> str:
    """A line for the other process."""
    return json.dumps([lane.words() for lane in lanes])


def connect_all(lanes: Sequence[Lane], said: str) -> None:
    """By the line of the other process."""
    for lane, words in zip(lanes, json.loads(said), strict=True):
        lane.connect(Far(*words))
