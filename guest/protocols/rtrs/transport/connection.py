"""Connections: CM identifier, queue pair, memory of the messages; delivery of all completions."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Sequence

from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.cm import CmId
from bluebridge.guest.protocols.rtrs.engine.actions import (
    SLOTS,
    Limits,
    Received,
    Register,
    Send,
    SendInvalidate,
    WorkRequest,
    WriteChunk,
    WriteImmediate,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.engine.interface import Engine
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interface, Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.memory import Chunks, Slots
from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionQueue,
    QpInit,
    QpType,
    QueuePair,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    Wc,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)

INLINE = 32
"""The most bytes of a SEND that go into the queue's entry; longer ones go into memory."""
_LOCAL = int(AccessFlags.LOCAL_WRITE)
_REMOTE = int(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)
_SIGNALED, _QUIET, _INLINE = int(SendFlags.SIGNALED), 0, int(SendFlags.INLINE)

RECEIVE = 1 << 32
"""The flag in the wr_id of receives; the low bits are the number of the buffer, 0 for none."""
_EMPTY = RecvWr(RECEIVE)
_RECEIVE_STRIDE = 64
_WITH_IMM, _WITH_INV = int(WcFlags.WITH_IMM), int(WcFlags.WITH_INV)

BATCH = 32
"""The most completions that one connection may have before the others have their turn."""
_SUCCESS, _FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


class WorkRequests:
    """Translates an engine's work requests to verbs, for a client's slots or a server's chunks."""

    def __init__(self, memory: Chunks) -> None:
        self._memory = memory

    def of(self, request: WorkRequest, interface: Interface, memory: list[DmaMemory]) -> SendWr:
        """Translate one request; memory that it needs besides is appended to `memory`."""
        flags = _SIGNALED if request.token else _QUIET
        if isinstance(request, WriteRequest):
            return self._write_request(request, interface, flags)
        if isinstance(request, WriteChunk):
            return self._write_chunk(request, interface, flags)
        if isinstance(request, WriteImmediate):
            return SendWr(
                request.token, WrOpcode.RDMA_WRITE_WITH_IMM, send_flags=flags, imm=request.immediate
            )
        if isinstance(request, Send):
            return _send(request, interface, flags, memory)
        if isinstance(request, Register):
            return self._register(request, flags)
        if isinstance(request, SendInvalidate):
            opcode, key = WrOpcode.SEND_WITH_INV, request.rkey
        else:
            opcode, key = WrOpcode.LOCAL_INV, request.key
        return SendWr(request.token, opcode, send_flags=flags, invalidate_rkey=key)

    def _write_request(self, request: WriteRequest, interface: Interface, flags: int) -> SendWr:
        slots = self._memory
        assert isinstance(slots, Slots)
        slots.put_header(request.slot, request.header)
        address = slots.address(SLOTS, request.slot)
        header = Sge(address + slots.data_size, len(request.header), interface.lkey)
        data = Sge(address, request.length, interface.lkey)
        return SendWr(
            request.token,
            WrOpcode.RDMA_WRITE_WITH_IMM,
            (data, header) if request.length else (header,),
            flags,
            request.immediate,
            remote_addr=request.remote_address,
            rkey=request.rkey,
        )

    def _write_chunk(self, request: WriteChunk, interface: Interface, flags: int) -> SendWr:
        address = self._memory.address(request.session, request.chunk)
        return SendWr(
            request.token,
            WrOpcode.RDMA_WRITE,
            (Sge(address, request.length, interface.lkey),),
            flags,
            remote_addr=request.remote_address,
            rkey=request.rkey,
        )

    def _register(self, request: Register, flags: int) -> SendWr:
        mapping = self._memory.mappings.mapping(request.path, request.region)
        count = -(-request.length // mapping.page_size)
        return SendWr(
            request.token,
            WrOpcode.REG_MR,
            send_flags=flags,
            mr=mapping.registration,
            pages=mapping.pages[:count],
            page_size=mapping.page_size,
            key=request.key,
            access=_REMOTE if request.remote_write else _LOCAL,
            iova=mapping.iova,
            length=request.length,
        )


def _send(request: Send, interface: Interface, flags: int, memory: list[DmaMemory]) -> SendWr:
    opcode = WrOpcode.SEND if request.immediate is None else WrOpcode.SEND_WITH_IMM
    immediate = request.immediate or 0
    data = request.data
    if len(data) <= INLINE:
        return SendWr(
            request.token, opcode, send_flags=flags | _INLINE, imm=immediate, inline_data=data
        )
    copy = interface.device.allocate(len(data))
    memory.append(copy)
    copy.view[: len(data)] = data
    piece = Sge(copy.address, len(data), interface.lkey)
    return SendWr(request.token, opcode, (piece,), flags, immediate)


class VerbsConnection:
    """Connection `number` on `interface`; `open` gives it a queue pair."""

    def __init__(self, number: int, interface: Interface, cm_id: CmId) -> None:
        self.number = number
        self.interface = interface
        self.cm_id = cm_id
        self.closing = False
        self.qp: QueuePair | None = None
        self.cq: CompletionQueue | None = None
        self._memory: list[DmaMemory] = []
        self._buffers: list[memoryview] = [memoryview(b"")]
        self._receives: list[RecvWr] = [_EMPTY]
        self._free: dict[int, deque[int]] = {}

    def open(self, limits: Limits) -> None:
        """Make a queue pair and its completion queue; raises `VerbsError`, `MemoryError`."""
        device = self.interface.device
        limit = device.query_device().max_qp_wr
        send, receive = min(limits.send, limit), min(limits.receive, limit)
        self.cq = device.create_cq(send + receive, self.interface.channel)
        self.qp = self.interface.pd.create_qp(
            QpInit(
                QpType.RC,
                self.cq,
                self.cq,
                send,
                receive,
                max_send_sge=limits.send_pieces,
                max_inline=INLINE,
            )
        )
        self.cm_id.attach(self.qp)

    def post_receives(self, count: int, length: int) -> None:
        """Post receives of `length` bytes each; raises `VerbsError`, `MemoryError`."""
        if self.qp is None:
            return
        if not length:
            self.qp.post_recv([_EMPTY] * count)
            return
        free = self._free.setdefault(length, deque())
        if len(free) < count:
            self._add_buffers(count - len(free), length)
        self.qp.post_recv([self._receives[free.popleft()] for _ in range(count)])

    def post_sends(self, requests: Sequence[WorkRequest], translate: WorkRequests) -> None:
        """Post a chain; raises `VerbsError`, `MemoryError`."""
        if self.qp is None:
            return
        chain: list[SendWr] = []
        for request in requests:
            chain.append(translate.of(request, self.interface, self._memory))
        self.qp.post_send(chain)

    def receive(self, wc: Wc) -> Received:
        """Return the bytes that a completed receive brought, and free its buffer."""
        index = wc.wr_id & (RECEIVE - 1)
        flags = int(wc.flags)  # operators of the enumeration are slow
        immediate = wc.imm if flags & _WITH_IMM else None
        invalidated = wc.imm if flags & _WITH_INV else None
        written = wc.opcode is WcOpcode.RECV_RDMA_WITH_IMM
        data = b""
        if index:
            buffer = self._buffers[index]
            if not written:
                data = bytes(buffer[: wc.byte_len])
            self._free[len(buffer)].append(index)
        return Received(data, immediate, invalidated, written)

    def stop(self) -> None:
        """Reset the queue pair, after which the hardware uses no memory any more."""
        if self.qp is not None:
            self.qp.modify_reset()

    def close(self) -> None:
        """Free everything that the connection holds."""
        self.cm_id.destroy()
        if self.qp is not None:
            self.qp.destroy()
            self.qp = None
        if self.cq is not None:
            self.cq.destroy()
            self.cq = None
        for buffer in self._buffers:
            buffer.release()
        for memory in self._memory:
            memory.free()
        self._memory, self._buffers = [], []

    def _add_buffers(self, count: int, length: int) -> None:
        stride = -(-length // _RECEIVE_STRIDE) * _RECEIVE_STRIDE
        memory = self.interface.device.allocate(count * stride)
        self._memory.append(memory)
        for start in range(0, count * stride, stride):
            index = len(self._buffers)
            self._buffers.append(memory.view[start : start + length])
            piece = Sge(memory.address + start, length, self.interface.lkey)
            self._receives.append(RecvWr(RECEIVE | index, (piece,)))
            self._free[length].append(index)


class Completions:
    """A `loop.Source` of the completion queues; all of them are armed before the loop waits.

    `perform` carries out the engine's actions after it was told of completions.
    """

    def __init__(
        self, engine: Engine, perform: Callable[[], None], interfaces: Interfaces, loop: Loop
    ) -> None:
        self._engine = engine
        self._perform = perform
        self._now: Callable[[], float] = loop.now
        self._unarmed: dict[int, VerbsConnection] = {}
        self._by_queue: dict[CompletionQueue, VerbsConnection] = {}
        self._channels = [interface.channel for interface in interfaces.all]
        for channel in self._channels:
            loop.register(channel.fileno(), select.EPOLLIN, self._events)

    def add(self, connection: VerbsConnection) -> None:
        """Poll a connection's queue from now on."""
        assert connection.cq is not None
        self._unarmed[connection.number] = connection
        self._by_queue[connection.cq] = connection

    def remove(self, connection: VerbsConnection) -> None:
        """Forget a completion queue that is about to go."""
        self._unarmed.pop(connection.number, None)
        if connection.cq is not None:
            self._by_queue.pop(connection.cq, None)

    def work(self) -> bool:
        """Tell the engine about the completions there are; returns True if there were any."""
        worked = False
        for connection in list(self._unarmed.values()):
            worked |= self.take(connection)
        if worked:
            self._perform()
        return worked

    def arm(self) -> None:
        """Ask for one event at the next completion of each queue that was polled."""
        for connection in self._unarmed.values():
            if connection.cq is not None:
                connection.cq.req_notify()
        self._unarmed.clear()

    def take(self, connection: VerbsConnection) -> bool:
        """Tell the engine of one connection's completions; returns whether there were any."""
        if connection.cq is None or connection.closing:
            return False
        completions = connection.cq.poll(BATCH)
        for wc in completions:
            if connection.closing:
                break
            self._tell(connection, wc)
        return bool(completions)

    def _tell(self, connection: VerbsConnection, wc: Wc) -> None:
        engine, number = self._engine, connection.number
        if wc.status is not _SUCCESS:
            if wc.status is not _FLUSHED:
                engine.failed(number, wc.status.name, self._now())
        elif wc.wr_id & RECEIVE:
            engine.received(number, connection.receive(wc), self._now())
        elif wc.wr_id:
            engine.sent(number, wc.wr_id, self._now())

    def _events(self, _events: int) -> None:
        """Poll the queues again whose event came."""
        for channel in self._channels:
            while (queue := channel.get_event(0)) is not None:
                connection = self._by_queue.get(queue)
                if connection is not None:
                    self._unarmed[connection.number] = connection
