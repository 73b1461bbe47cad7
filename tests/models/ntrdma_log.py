"""Logs of NTRDMA between machines a and b, written through the real writer as a device would."""

from __future__ import annotations

from pathlib import Path

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout import ioat
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ioat import DESCRIPTOR, DESCRIPTOR_SIZE
from bluebridge.device.layout.ntb import gen4
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma import port
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.device.layout.ntrdma.port import CONF_BLOCK, INIT_BLOCK, PEER_INFO, PortState, Spad
from bluebridge.device.layout.ntrdma.work import (
    COMPLETION,
    FRAME_BUFFER,
    FRAME_COMPLETION,
    PIECE,
    RECV_ENTRY,
    SEND_ENTRY,
    WorkCode,
)

WINDOW = 0xF8_0000_0000
MESSAGE = 0xFEE00000, 0x37
BASE = {"a": 0x1000_0000, "b": 0x2000_0000}
"""Where each machine has its block, rings and regions; the offsets are the same on both."""
BLOCK, BELLS, RESPONSES, RESPONSE_INDEX = 0, 0x1000, 0x2000, 0x2800
COMMANDS, COMMAND_INDEX, COMPLETIONS, CONSUMED = 0x3000, 0x4000, 0x5000, 0x6000
RECEIVES, RECEIVE_INDEX, SENDS, SEND_INDEX = 0x7000, 0x8000, 0x9000, 0xA000
LENGTHS, LENGTH_INDEX, BUFFERS, BUFFER_INDEX = 0xB000, 0xD000, 0xE000, 0x1_2000
FRAMES, MEMORY = 0x20000, 0x10_0000
CAPACITY, PIECES = 16, 2
SEND_BYTES = SEND_ENTRY.size + PIECES * 16
QPN, COMPLETION_BELL, SEND_BELL = 0x11, 8, 9
KEY, IOVA, LENGTH = 0x4400, 0x7000_0000, 1 << 20


class Machine:
    """One side; `engine` says whether a DMA engine stores, else the processor."""

    def __init__(self, log: FileLog, name: str, peer: str, engine: bool) -> None:
        self.name, self.peer = name, peer
        self.base, self.there = BASE[name], BASE[peer]
        self._log, self._engine = log, engine
        self._bridge, self._dma = log.device(f"{name}.ntb4"), log.device(f"{name}.dma")
        self._arrive = log.device(f"{peer}.ntb4")
        self._descriptors = self._waiting = 0
        self.bells: dict[int, int] = {}

    # -- stores ---------------------------------------------------------------------------------

    def begin(self, descriptors: int) -> None:
        """Ring the engine for so many."""
        if self._engine:
            self._descriptors += descriptors
            where = ioat.CHANNEL.at("dma_count", 0)
            data = (self._descriptors & 0xFFFF).to_bytes(2, "little")
            self._log.record(self._dma, Kind.MMIO_WRITE, 0, where, 2, data)

    def store(self, address: int, data: bytes, length: int | None = None) -> None:
        """Store `data`, the beginning of `length` bytes, at an address of the peer's bus."""
        size = len(data) if length is None else length
        log, what = self._log, int(What.COPY)
        is_message = address == MESSAGE[0]
        if self._engine:
            packed = DESCRIPTOR.pack(size=size, source=0x1234, destination=WINDOW + address)
            log.record(
                self._dma, Kind.DMA_READ, 0, 0x9000, DESCRIPTOR_SIZE, packed, What.DESCRIPTOR
            )
            log.record(self._dma, Kind.DMA_READ, 0, 0x1234, size, data, what)
            if not is_message:
                log.record(self._dma, Kind.DMA_WRITE, 0, WINDOW + address, size, data, what)
        else:
            log.record(self._bridge, Kind.MMIO_WRITE, gen4.WINDOW_BARS[1], address, size, data)
        arrived = What.MESSAGE if is_message else What.WINDOW
        log.keep(self._arrive, Kind.DMA_WRITE, 0, address, size, bytes(data), int(arrived), 0)
        if self._engine:
            if is_message:
                log.record(self._dma, Kind.DMA_WRITE, 0, WINDOW + address, size, data, what)
            log.record(self._dma, Kind.DMA_WRITE, 0, 0xA000, 8, bytes(8), What.COMPLETION)

    def word(self, address: int, value: int) -> None:
        """Store an index or a bell."""
        self.store(address, value.to_bytes(4, "little"))

    def bell(self, number: int) -> None:
        """Ring one of the peer's bells."""
        self.bells[number] = self.bells.get(number, 0) + 1
        self.word(self.there + BELLS + 4 * number, self.bells[number])

    def interrupt(self) -> None:
        """The peer's message."""
        self.word(*MESSAGE)

    # -- the ports ------------------------------------------------------------------------------

    def spad(self, index: Spad, value: int) -> None:
        """Write one of the peer's scratchpads."""
        where = gen4.PEER_SPAD.at("spad", index)
        self._log.record(self._bridge, Kind.MMIO_WRITE, 0, where, 4, value.to_bytes(4, "little"))

    def tell_address(self) -> None:
        """State 3."""
        self.spad(Spad.VERSION, 0x10001)
        self.spad(Spad.ADDRESS_LOW, self.base & 0xFFFFFFFF)
        self.spad(Spad.ADDRESS_HIGH, self.base >> 32)
        self.spad(Spad.PING, PortState.SPADS_READY << 16 | 5)

    def tell_blocks(self, ethernet: bool = False) -> None:
        """States 4 and 5: where everything is in this side's memory."""
        base, frames = self.base, {}
        if ethernet:
            frames = {
                "ethernet_capacity": port.ETHERNET_CAPACITY, "ethernet_bell": 5,
                "ethernet_completions": base + LENGTHS, "ethernet_consumed": base + LENGTH_INDEX,
                "ethernet_buffers": base + BUFFERS, "ethernet_produced": base + BUFFER_INDEX,
                "ethernet_send_bell": 4,
            }  # fmt: skip
        block = PEER_INFO.pack(
            frames,
            version_tag=port.VERSION_TAG, msi_address=MESSAGE[0], msi_data=MESSAGE[1], msi_count=1,
            bells=base + BELLS, bell_count=port.DOORBELLS, command_capacity=port.COMMAND_CAPACITY,
            responses=base + RESPONSES, response_index=base + RESPONSE_INDEX, bell_response=1,
            init_tag=port.VERSION_TAG, commands=base + COMMANDS,
            command_produced=base + COMMAND_INDEX, conf_tag=port.VERSION_TAG,
        )  # fmt: skip
        for part in (INIT_BLOCK, slice(0, 4), CONF_BLOCK):
            self.store(self.there + BLOCK + part.start, bytes(block[part]))
        self.word(self.there + PEER_INFO.field("ping").offset, PortState.READY << 16 | 9)

    def command(self, slot: int, command: bytes | bytearray) -> None:
        """A command to the peer, which is executed."""
        self.store(self.there + COMMANDS + slot * layout.COMMAND_SIZE, bytes(command))
        self.word(self.there + COMMAND_INDEX, slot + 1)
        self.bell(port.BELL_COMMAND)
        self.interrupt()

    def respond(self, slot: int, **values: int) -> None:
        """The response to a command of the peer's."""
        response = layout.KEYED_RESPONSE.pack(dict(values))
        self.store(self.there + RESPONSES + slot * layout.RESPONSE_SIZE, bytes(response))
        self.word(self.there + RESPONSE_INDEX, slot + 1)
        self.bell(port.BELL_RESPONSE)
        self.interrupt()

    def resources(self) -> list[bytearray]:
        """The commands for a region, and a queue pair that is connected."""
        region = layout.MR_CREATE.pack(
            op=CommandCode.MR_CREATE, key=KEY, access=7, address=IOVA, length=LENGTH, capacity=1,
            count=1,
        )  # fmt: skip
        segment = layout.SEGMENT.pack(address=self.base + MEMORY, length=LENGTH)
        region[layout.CREATE_LIST : layout.CREATE_LIST + len(segment)] = segment
        pair = layout.QP_CREATE.pack(
            op=CommandCode.QP_CREATE, key=QPN, recv_capacity=CAPACITY, recv_pieces=PIECES,
            send_capacity=CAPACITY, send_pieces=PIECES, send_completions=self.base + COMPLETIONS,
            send_consumed=self.base + CONSUMED, completion_bell=COMPLETION_BELL,
        )  # fmt: skip
        ready = layout.QP_MODIFY.pack(
            op=CommandCode.QP_MODIFY, key=QPN, state=int(QueueState.READY_TO_SEND), peer_key=QPN
        )
        return [region, pair, ready]

    def twin(self) -> dict[str, int]:
        """Return what the response to the peer's QP_CREATE says."""
        base = self.base
        return {
            "recv_entries": base + RECEIVES,
            "recv_produced": base + RECEIVE_INDEX,
            "send_entries": base + SENDS,
            "send_produced": base + SEND_INDEX,
            "send_bell": SEND_BELL,
        }


class Pair:
    """Both machines, after the handshake; everything below is of a's queue pair to b's."""

    def __init__(self, folder: Path, *, engine: bool = True, ethernet: bool = False) -> None:
        self.log = FileLog(folder)
        self.a = Machine(self.log, "a", "b", engine)
        self.b = Machine(self.log, "b", "a", engine)
        self.sent = self.answered = 0
        for each in (self.a, self.b):
            each.tell_address()
        for each in (self.a, self.b):
            each.tell_blocks(ethernet)
        for one, other in ((self.a, self.b), (self.b, self.a)):
            for slot, command in enumerate(one.resources()):
                one.command(slot, command)
                op = layout.RESPONSE.get(command, "op")
                values = other.twin() if op == CommandCode.QP_CREATE else {}
                key = layout.KEYED_RESPONSE.get(command, "key")
                other.respond(slot, op=op, key=key, **values)

    def post(self, op: WorkCode, sizes: list[int], *, interrupt: bool = True) -> None:
        """A batch of requests, with the data of all that carry some."""
        carried = [] if op is WorkCode.READ else [size for size in sizes if size]
        self.a.begin(len(carried) + 4)
        for size in carried:
            self.a.store(self.a.there + MEMORY + 0x100, bytes(min(size, 64)), size)
        self._entries([self.entry(op, size) for size in sizes])
        self.a.word(self.a.there + SEND_INDEX, self.sent % (2 * CAPACITY))
        self.a.bell(SEND_BELL)
        if interrupt:
            self.a.interrupt()

    def entry(self, op: WorkCode, size: int) -> bytes:
        """A send entry; a read is into the region's beginning."""
        head = SEND_ENTRY.pack(
            op=op, rdma_key=KEY, rdma_length=size, rdma_address=IOVA + 0x100,
            piece_count=int(op is WorkCode.READ),
        )  # fmt: skip
        piece = PIECE.pack(address=IOVA, length=size, key=KEY)
        return bytes(head + piece).ljust(SEND_BYTES, b"\0")

    def _entries(self, entries: list[bytes]) -> None:
        """Copy entries to the twin's ring, in two stores at its end."""
        while entries:
            slot = self.sent % CAPACITY
            part = entries[: CAPACITY - slot]
            entries = entries[len(part) :]
            self.a.store(self.a.there + SENDS + slot * SEND_BYTES, b"".join(part))
            self.sent += len(part)

    def answer(self, op: WorkCode, sizes: list[int], status: int = 0) -> None:
        """The completions of as many requests, with the data of reads."""
        read = sizes if op is WorkCode.READ else []
        self.b.begin(len(read) + 4)
        for size in read:
            self.b.store(self.b.there + MEMORY, bytes(min(size, 64)), size)
        for size in sizes:
            where = self.b.there + COMPLETIONS + self.answered % CAPACITY * COMPLETION.size
            done = COMPLETION.pack(op=op, status=status, length=size)
            self.b.store(where, bytes(done))
            self.answered += 1
        self.b.word(self.b.there + CONSUMED, self.answered % (2 * CAPACITY))
        self.b.bell(COMPLETION_BELL)
        self.b.interrupt()

    def receive(self, slot: int) -> None:
        """b posts a receive, and tells a."""
        entry = RECV_ENTRY.pack(piece_count=1) + PIECE.pack(address=IOVA, length=4096, key=KEY)
        size = RECV_ENTRY.size + PIECES * 16
        self.b.begin(2)
        self.b.store(self.b.there + RECEIVES + slot * size, bytes(entry).ljust(size, b"\0"))
        self.b.word(self.b.there + RECEIVE_INDEX, slot + 1)

    def frame(self, size: int) -> None:
        """b posts a buffer, a sends a frame into it."""
        buffer = self.b.base + FRAMES
        self.b.store(self.b.there + BUFFERS, bytes(FRAME_BUFFER.pack(address=buffer, length=1514)))
        self.b.word(self.b.there + BUFFER_INDEX, 1)
        self.b.bell(4)
        self.a.store(buffer, bytes(64), size)
        self.a.store(self.a.there + LENGTHS, bytes(FRAME_COMPLETION.pack(length=size)))
        self.a.word(self.a.there + LENGTH_INDEX, 1)
        self.a.bell(5)
