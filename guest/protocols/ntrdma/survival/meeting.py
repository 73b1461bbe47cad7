"""Two sides that check each other's memory: one writes and reads back, the other sums it up."""

from __future__ import annotations

import os
import struct
import time
import zlib

from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpInit,
    QpType,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    Wc,
    WcStatus,
    WrOpcode,
)

SIZE = 16384
SECONDS = 30.0
_DEPTH = 16
_HELLO = struct.Struct("<QI")
_NOTE = struct.Struct("<II")
"""Number of a round, checksum of what the memory then holds."""
_NOTES = 2 * SIZE
_PAUSE = 0.001
_RECEIVED, _SENT = 1, 2
_ALL = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ


class Lost(Exception):
    """The peer has gone."""


class WrongData(Exception):
    """Memory does not hold what it must."""


class Meeting:
    """A queue pair with memory: what the peer writes, what is read back, and notes behind them."""

    def __init__(self, device: Device) -> None:
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(4 * _DEPTH)
        self.qp = self.pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, _DEPTH, _DEPTH))
        length = _NOTES + (_DEPTH + 1) * _NOTE.size
        self.memory = device.allocate(length)
        self.mr = self.pd.reg_mr(self.memory.address, length, access=_ALL)
        self.peer = 0, 0
        """Address of the peer's memory, and its key."""
        self._waiting: list[Wc] = []
        self._slot = 0
        for slot in range(_DEPTH):
            self._receive(slot)

    @property
    def hello(self) -> bytes:
        """Return the numbers and addresses that the peer needs."""
        return _HELLO.pack(self.memory.address, self.mr.rkey)

    def meet(self, hello: bytes) -> None:
        """Return the peer's hello."""
        self.peer = _HELLO.unpack_from(hello)

    def exchange(self, rounds: int) -> None:
        """Write, have it summed up, read it back. Raises `Lost`, `WrongData`."""
        for number in range(rounds):
            data = os.urandom(SIZE)
            self.memory.view[:SIZE] = data
            self._post(WrOpcode.RDMA_WRITE, 0, SIZE)
            self._tell(_NOTE.pack(number, 0))
            if self._hear() != (number, zlib.crc32(data)):
                raise WrongData("the peer has other bytes than were written")
            self._post(WrOpcode.RDMA_READ, SIZE, SIZE)
            self._wait(_SENT)
            if self.memory.view[SIZE:_NOTES] != data:
                raise WrongData("other bytes were read than had been written")

    def begin_writing(self) -> None:
        """Requests that are under way when this returns. Raises `Lost`."""
        for _ in range(_DEPTH // 2):
            self._post(WrOpcode.RDMA_WRITE, 0, SIZE)

    def answer(self) -> bool:
        """Sum up the memory for each note that has come; whether there was one. Raises `Lost`."""
        self._waiting += self._poll()
        notes = [wc for wc in self._waiting if wc.wr_id == _RECEIVED]
        self._waiting.clear()
        for _ in notes:
            number, _sum = self._note()
            self._tell(_NOTE.pack(number, zlib.crc32(self.memory.view[:SIZE])))
        return bool(notes)

    def close(self) -> None:
        """Give everything back."""
        self.qp.destroy()
        self.cq.destroy()
        self.mr.close()
        self.memory.free()
        self.pd.close()

    # -- requests -------------------------------------------------------------------------------

    def _receive(self, slot: int) -> None:
        address = self.memory.address + _NOTES + slot * _NOTE.size
        self.qp.post_recv(RecvWr(_RECEIVED, (Sge(address, _NOTE.size, self.mr.lkey),)))

    def _post(self, opcode: WrOpcode, offset: int, length: int) -> None:
        """To or from the peer's first bytes."""
        piece = Sge(self.memory.address + offset, length, self.mr.lkey)
        flags = SendFlags.SIGNALED if opcode is WrOpcode.RDMA_READ else SendFlags(0)
        request = SendWr(_SENT, opcode, (piece,), flags)
        request.remote_addr, request.rkey = self.peer
        self.qp.post_send(request)

    def _tell(self, note: bytes) -> None:
        offset = _NOTES + _DEPTH * _NOTE.size
        self.memory.view[offset : offset + _NOTE.size] = note
        piece = Sge(self.memory.address + offset, _NOTE.size, self.mr.lkey)
        self.qp.post_send(SendWr(_SENT, WrOpcode.SEND, (piece,)))
        self._wait(_SENT)

    def _hear(self) -> tuple[int, int]:
        self._wait(_RECEIVED)
        return self._note()

    def _note(self) -> tuple[int, int]:
        """The oldest note, whose receive is posted anew."""
        number, summed = _NOTE.unpack_from(self.memory.view, _NOTES + self._slot * _NOTE.size)
        self._receive(self._slot)
        self._slot = (self._slot + 1) % _DEPTH
        return number, summed

    def _wait(self, wr_id: int) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            for place, wc in enumerate(self._waiting):
                if wc.wr_id == wr_id:
                    del self._waiting[place]
                    return
            found = self._poll()
            self._waiting += found
            if not found:
                if time.monotonic() > deadline:
                    raise Lost("the peer does not go on")
                time.sleep(_PAUSE)

    def _poll(self) -> list[Wc]:
        found = self.cq.poll(_DEPTH)
        for wc in found:
            if wc.status is not WcStatus.SUCCESS:
                raise Lost(f"a request ended with {wc.status.name}")
        return found
