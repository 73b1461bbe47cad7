"""Translation of the engine's work requests to those of verbs."""

from __future__ import annotations

from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Invalidate,
    Register,
    Send,
    SendInvalidate,
    WorkRequest,
    WriteChunk,
    WriteImmediate,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interface
from bluebridge.guest.protocols.rtrs.transport.memory import Chunks, Slots
from bluebridge.guest.verbs import AccessFlags, SendFlags, SendWr, Sge, WrOpcode

INLINE = 32
"""The most bytes of a SEND that go into the queue's entry; longer ones go into memory."""
_LOCAL = int(AccessFlags.LOCAL_WRITE)
_REMOTE = int(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)
_SIGNALED, _QUIET, _INLINE = int(SendFlags.SIGNALED), 0, int(SendFlags.INLINE)


class WorkRequests:
    """Translates an engine's work requests to verbs, for a client's slots or a server's chunks."""

    def __init__(self, slots: Slots | None, chunks: Chunks | None) -> None:
        self._slots = slots
        self._chunks = chunks

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
        return _invalidation(request, flags)

    def _write_request(self, request: WriteRequest, interface: Interface, flags: int) -> SendWr:
        slots = self._slots
        assert slots is not None
        slots.put_header(request.slot, request.header)
        address = slots.address(request.slot)
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
        assert self._chunks is not None
        address = self._chunks.address(request.session, request.chunk)
        return SendWr(
            request.token,
            WrOpcode.RDMA_WRITE,
            (Sge(address, request.length, interface.lkey),),
            flags,
            remote_addr=request.remote_address,
            rkey=request.rkey,
        )

    def _register(self, request: Register, flags: int) -> SendWr:
        mappings = (self._slots or self._chunks or _missing()).mappings
        mapping = mappings.mapping(request.path, request.region)
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


def _invalidation(request: SendInvalidate | Invalidate, flags: int) -> SendWr:
    if isinstance(request, SendInvalidate):
        opcode, key = WrOpcode.SEND_WITH_INV, request.rkey
    else:
        opcode, key = WrOpcode.LOCAL_INV, request.key
    return SendWr(request.token, opcode, send_flags=flags, invalidate_rkey=key)


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


def _missing() -> Slots:
    raise LookupError("there is no memory to register")
