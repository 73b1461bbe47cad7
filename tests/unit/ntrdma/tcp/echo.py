"""A peer in a process of its own: it sends back what it receives, on several queue pairs.

python -m tests.unit.ntrdma.tcp.echo BACK_END COUNT

A line says where its queue pairs are, one that it reads says where the other side's are; a third
one, `ready`, ends the set-up. It runs until its input ends, or until its peer is gone.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.guest.providers import open_ntrdma
from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionChannel,
    Device,
    QpInit,
    QpType,
    RecvWr,
    SendWr,
    Sge,
    Wc,
    WcStatus,
    WrOpcode,
)

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


SLOTS = 8
SLOT_BYTES = 4096


class Echo:
    """A lane whose first bytes are `SLOTS` buffers for messages."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def receive(self, slot: int) -> None:
        """A buffer is free."""
        self._lane.qp.post_recv(RecvWr(slot, (self._piece(slot, SLOT_BYTES),)))

    def take(self, wc: Wc) -> None:
        """Send a message back; its buffer is free when that is done."""
        assert wc.status is WcStatus.SUCCESS, wc
        if wc.wr_id >= SLOTS:
            self.receive(wc.wr_id - SLOTS)
            return
        piece = self._piece(wc.wr_id, wc.byte_len)
        self._lane.qp.post_send(SendWr(SLOTS + wc.wr_id, WrOpcode.SEND, (piece,)))

    def _piece(self, slot: int, length: int) -> Sge:
        return Sge(self._lane.memory.address + slot * SLOT_BYTES, length, self._lane.mr.lkey)


def main(back_end: str, count: int) -> None:
    """Serve until the input ends."""
    with open_ntrdma(back_end) as device:
        channel = device.create_comp_channel()
        lanes = [Lane(device, channel) for _ in range(count)]
        print(told(lanes), flush=True)
        connect_all(lanes, sys.stdin.readline())
        echoes = [Echo(lane) for lane in lanes]
        for echo in echoes:
            for slot in range(SLOTS):
                echo.receive(slot)
        print("ready", flush=True)
        serve(channel, lanes, echoes)


def serve(channel: CompletionChannel, lanes: Sequence[Lane], echoes: Sequence[Echo]) -> None:
    """Sleeps when nothing has come."""
    while not select.select([sys.stdin], [], [], 0)[0]:
        worked = False
        for lane, echo in zip(lanes, echoes, strict=True):
            for wc in lane.cq.poll():
                worked = True
                echo.take(wc)
        if not worked:
            for lane in lanes:
                lane.cq.req_notify()
            channel.get_event(0.1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
