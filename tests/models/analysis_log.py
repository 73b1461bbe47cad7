"""Logs of a few work requests, written through the real writer as a device would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bluebridge.device.buslog import wire
from bluebridge.device.buslog.record import INDEX_MASK, WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Value
from bluebridge.device.layout.mlx4 import cqe, eqe, uar, wqe
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.device.packets.message import RELIABLE

A, B = 0, 1
QPN, PEER_QPN, CQN, EQN = 0x48, 0x52, 0x80, 5
PAGE = 128
RING, DATA, TARGET = 0x100000, 0x200000, 0x300000


class Sender:
    """One queue pair of device a towards one of b: `post` logs a whole RDMA WRITE."""

    def __init__(self, folder: Path, **options: int) -> None:
        self.log = FileLog(folder, **options)
        self.log.device("a")
        self.log.device("b")
        self.index = 0

    def entry(self, length: int, *, inline: bool, blueflame: bool) -> bytes:
        """The send entry; with `blueflame` as it stands in the register."""
        data = bytearray(wqe.CTRL.pack(opcode=wqe.SendOpcode.RDMA_WRITE, cqe=3))
        data += wqe.RADDR.pack(va=TARGET, rkey=7)
        if inline:
            data += (wqe.INLINE | length).to_bytes(4, "big") + bytes(length)
        else:
            data += wqe.DATA.pack(byte_count=length, lkey=5, va=DATA)
        data += bytes(-len(data) % 16)
        data[7] = len(data) // 16
        if blueflame:
            data[1:3] = (self.index & 0xFFFF).to_bytes(2, "big")
            data[4:7] = QPN.to_bytes(3, "big")
        return bytes(data)

    def doorbell(self) -> None:
        """Software rings."""
        self.host()
        value = uar.send_doorbell(QPN).to_bytes(4, "big")
        self.log.record(A, Kind.MMIO_WRITE, 2, PAGE * uar.PAGE_SIZE + uar.SEND_DOORBELL, 4, value)

    def stores(self, entry: bytes, page: int = PAGE, half: int = 0) -> None:
        """Software stores an entry, 8 bytes at a time, in whole lines."""
        data = entry.ljust(-(-len(entry) // 64) * 64, b"\0")
        base = uar.UAR_AREA_SIZE + page * uar.PAGE_SIZE + half * uar.BLUEFLAME_BUFFER
        for at in range(0, len(data), 8):
            self.host()
            self.log.record(A, Kind.MMIO_WRITE, 2, base + at, 8, data[at : at + 8])

    def host(self) -> None:
        """An access of the guest ends what came before it."""
        self.log.work = 0

    def tell(self, fact: Fact, **values: Value) -> None:
        """The device tells a fact."""
        self.host()
        self.log.tell(A, fact, **values)

    def command(
        self, name: str, status: str = "OK", *, in_mod: int = 1, op_mod: int = 0, reason: str = ""
    ) -> None:
        """A firmware command was carried out, or refused."""
        self.tell(
            Fact.COMMAND, name=name, op_mod=op_mod, in_mod=in_mod, status=status, us=9,
            reason=reason,
        )  # fmt: skip

    def fetch(self, entry: bytes) -> None:
        """The device reads an entry."""
        self._concern()
        self.log.record(
            A, Kind.DMA_READ, 0, RING + self.index * 64, len(entry), entry, What.SQ_WQE, QPN
        )

    def pushed(self, entry: bytes) -> None:
        """The device takes an entry that was stored."""
        self._concern()
        self.log.record(A, Kind.BLUEFLAME, 0, 0, len(entry), entry, What.SQ_WQE, QPN)

    def carry_out(self, length: int, *, inline: bool, announced: bool = False) -> None:
        """Record what follows once the device has the entry."""
        record = self.log.record
        if not inline:
            record(A, Kind.DMA_READ, 0, DATA, length, bytes(64), What.PAYLOAD, QPN)
        self._message(A, What.REQUEST, PEER_QPN, length)
        record(B, Kind.DMA_WRITE, 0, TARGET, length, bytes(64), What.PAYLOAD, PEER_QPN)
        self._message(B, What.RESPONSE, QPN, 0)
        done = bytes(
            cqe.CQE.pack(
                qpn=QPN, wqe_index=self.index & 0xFFFF, is_send=1, byte_count=length,
                opcode=wqe.SendOpcode.RDMA_WRITE,
            )
        )  # fmt: skip
        record(A, Kind.DMA_WRITE, 0, 0x400000, 32, done, What.CQE, CQN)
        if announced:
            event = bytes(eqe.COMP_EQE.pack(type=eqe.EventType.COMP, cqn=CQN))
            record(A, Kind.DMA_WRITE, 0, 0x500000, 32, event, What.EQE, EQN)
            record(A, Kind.IRQ, 0, 1, 0, b"")
        self.index += 1

    def post(
        self, length: int = 8, *, by: str = "doorbell", inline: bool = True, announced: bool = False
    ) -> None:
        """A whole RDMA WRITE: `by` doorbell, blueflame or fallback."""
        entry = self.entry(length, inline=inline, blueflame=by != "doorbell")
        if by == "doorbell":
            self.doorbell()
        else:
            self.stores(entry, 0 if by == "fallback" else PAGE, self.index & 1)
        if by == "fallback":
            self.log.tell(A, Fact.BLUEFLAME_REFUSED, page=0, reason="its page is 128", qpn=QPN)
        if by == "blueflame":
            self.pushed(entry)
        else:
            self.fetch(entry)
        self.carry_out(length, inline=inline, announced=announced)

    def _concern(self) -> None:
        index = self.index & INDEX_MASK
        self.log.work = 1 << WORK_DEVICE_SHIFT | QPN << WORK_QPN_SHIFT | index

    def _message(self, device: int, what: What, target: int, length: int) -> None:
        self.log.message(
            device, what, target, TARGET, length,
            RELIABLE, Op.WRITE, Syndrome.ACK, QPN, self.index & 0xFFFFFF, 1, 7, 0,
            bytes(wire.ROUTE.size), b"",
        )  # fmt: skip


def posted(folder: Path, times: int = 1, size: int = 8, **options: Any) -> Path:
    """A finished log of posts that are alike; returns its folder."""
    sender = Sender(folder)
    for _ in range(times):
        sender.post(size, **options)
    sender.log.close()
    return folder


def nine_posts(folder: Path, rounds: int = 1) -> Path:
    """A finished log of three posts in each way, a third of them with event entry and interrupt."""
    sender = Sender(folder)
    for _ in range(rounds):
        for by in ("doorbell", "blueflame", "fallback"):
            for size in (8, 100, 200):
                sender.post(size, by=by, announced=size == 100)
    sender.log.close()
    return folder
