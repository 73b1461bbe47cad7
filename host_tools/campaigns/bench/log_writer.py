"""`python -m` of this module with DIR N: N events, logged as a device does.

The calls are those that a 64-byte RDMA WRITE causes, made by an endpoint and a captured fabric
as in the device server. Prints the seconds it took, the last byte on disk included.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bluebridge.device.buslog.segments import TOTAL_BYTES
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Request, Response, Route
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import cqe, uar, wqe
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.process import CONNECTX3

QPN, PEER, CQN = 0x48, 0x52, 0x80
SIZE = 64
EVENTS_OF_A_WRITE = 7
DOORBELL = 128 * uar.PAGE_SIZE + uar.SEND_DOORBELL


class _Port:
    """A port whose messages are recorded and lost."""

    def receive(self, message: object) -> int:
        """Take nothing: no message comes."""
        return 0


class Writes:
    """The log calls of RDMA WRITEs from device a to device b."""

    def __init__(self, folder: Path, sockets: Path, events: int) -> None:
        total = max(TOTAL_BYTES, events * 256)
        self.log = FileLog(folder, total=total)
        loop = EventLoop()
        self._ends = [
            Endpoint(name, sockets / name, CONNECTX3, (), (), 1, loop, self.log) for name in "ab"
        ]
        self._captured = CapturedFabric(LocalFabric(), self.log, "a")
        self._answers = CapturedFabric(LocalFabric(), self.log, "b")
        self._port = _Port()
        self._route = Route(b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", bytes(16), bytes(16))
        self._payload = memoryview(bytearray(SIZE))
        self._entry = bytes(
            wqe.CTRL.pack(opcode=SendOpcode.RDMA_WRITE, ds=3, cqe=3)
            + wqe.RADDR.pack(va=0x10000, rkey=7)
            + wqe.DATA.pack(byte_count=SIZE, lkey=5, va=0x20000)
        )
        self._done = cqe.CQE.pack(qpn=QPN, is_send=1, opcode=SendOpcode.RDMA_WRITE)
        self._doorbell = uar.send_doorbell(QPN).to_bytes(4, "big")

    def write(self, index: int) -> None:
        """Write one message: seven events."""
        a, b, log = self._ends[0], self._ends[1], self.log
        log.work = 0
        log.record(0, Kind.MMIO_WRITE, 2, DOORBELL, 4, self._doorbell)
        a.concern(QPN, index)
        a.note_dma(Kind.DMA_READ, 0x30000, len(self._entry), self._entry, What.SQ_WQE, QPN)
        a.note_dma(Kind.DMA_READ, 0x20000, SIZE, self._payload, What.PAYLOAD, QPN)
        request = Request(
            Op.WRITE, self._route, QPN, PEER, index & 0xFFFFFF, 1, SIZE, [self._payload], 0x10000, 7
        )
        self._captured.send(self._port, request)
        b.resume(request.work)
        b.note_dma(Kind.DMA_WRITE, 0x10000, SIZE, self._payload, What.PAYLOAD, PEER)
        self._answers.send(self._port, Response(self._route, QPN, index & 0xFFFFFF, 0))
        done = self._done
        done[24:26] = (index & 0xFFFF).to_bytes(2, "big")
        a.note_dma(Kind.DMA_WRITE, 0x40000, len(done), bytes(done), What.CQE, CQN)

    def close(self) -> None:
        """End the log and the endpoints."""
        self.log.close()
        for end in self._ends:
            end.close()


def main() -> int:
    """Write the log; returns 0."""
    folder, events = Path(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as sockets:
        writes = Writes(folder, Path(sockets), events)
        start = time.monotonic()
        for index in range(events // EVENTS_OF_A_WRITE):
            writes.write(index)
        for number in range(events % EVENTS_OF_A_WRITE):
            writes.log.record(0, Kind.IRQ, 0, number, 0, b"")
        writes.log.flush()
        seconds = time.monotonic() - start
        writes.close()
    print(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
