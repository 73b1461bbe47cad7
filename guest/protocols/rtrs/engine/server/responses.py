"""Responses: chains of work requests, in the kernel's order."""

from __future__ import annotations

from bluebridge.device.layout.net.rtrs import (
    ImmediateType,
    MessageType,
    immediate,
    response_payload,
)
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Register,
    Send,
    SendInvalidate,
    WorkRequest,
    WriteChunk,
    WriteImmediate,
)
from bluebridge.guest.protocols.rtrs.engine.formats import NEW_KEY
from bluebridge.guest.protocols.rtrs.engine.server.operations import Operation
from bluebridge.guest.protocols.rtrs.engine.server.requests import Message


def response(
    operation: Operation, message: Message, session: int, renewal: Register | None, token: int
) -> list[WorkRequest]:
    """Data of a read, a new registration of the chunk, the end of the client's key, the response.

    `renewal` brings the chunk's new key, None: it keeps the old one. An error response ends the
    client's key first, as the kernel's does.
    """
    chain: list[WorkRequest] = []
    ending = message.need_inval and message.answer > 0
    if not operation.errno and message.answer:
        chunk, length = operation.chunk, message.answer
        chain.append(WriteChunk(session, chunk, length, message.address, message.rkey))
    elif ending:
        chain.append(SendInvalidate(message.rkey))
    if renewal is not None:
        chain.append(renewal)
    if ending and not operation.errno:
        chain.append(SendInvalidate(message.rkey))
    chain.append(_last(operation, ending, renewal, token))
    return chain


def _last(operation: Operation, ending: bool, renewal: Register | None, token: int) -> WorkRequest:
    kind = ImmediateType.IO_RSP_W_INV if ending else ImmediateType.IO_RSP
    value = immediate(kind, response_payload(operation.chunk, operation.errno))
    if renewal is None:
        return WriteImmediate(value, token)
    data = NEW_KEY.pack(MessageType.RKEY_RSP, operation.chunk, renewal.key)
    return Send(data, value, token)
