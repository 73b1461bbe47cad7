"""The traits of a message by which fault rules match it, and copies of those that rules keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bluebridge.device.fabric.faults.roce_packets import Change, RocePacket, damaged, packet_of
from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import (
    Datagram,
    Frames,
    Message,
    Payload,
    Request,
    Response,
    Train,
)
from bluebridge.device.layout.events import Value
from bluebridge.device.layout.ib.mad import MAD, MgmtClass
from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.device.layout.net.roce import GSI_QPN, Op, Syndrome

NONE: Final = -1
"""Number of a trait that a message does not have."""
MESSAGE_BYTES: Final = 512
"""Approximate bytes of memory that a message takes besides its payload."""

_KIND_OF_SYNDROME: Final = 0x60
_RESPONSES: Final = 0x100
_READ: Final = 1
_ATOMIC: Final = 2
_DATAGRAMS: Final = 0x200
_FRAMES: Final = 0x300
_PACKETS: Final = 0x400
_WITH_IMMEDIATE: Final = (Op.SEND_IMM, Op.WRITE_IMM)
_CM_NAMES: Final = {int(attribute): attribute.name for attribute in CmAttribute}


def sort_of(message: Message) -> int:
    """Return a number that messages with the same kind, operation and place for a value share."""
    if isinstance(message, Request):
        return int(message.op)
    if isinstance(message, Response):
        answers = _READ * message.read | _ATOMIC * (message.atomic_original is not None)
        return _RESPONSES | message.syndrome & _KIND_OF_SYNDROME | answers
    if isinstance(message, Datagram):
        return _DATAGRAMS | (message.immediate is not None)
    packet = packet_of(message)
    return _FRAMES if packet is None else _PACKETS | packet.opcode


class Traits:
    """The properties of a message that rules ask for, read once.

    `kind` is one of `fault_words.KINDS`; `opcode` the operation of a request or packet, or an
    answer's kind, empty for frames; `length` counts the bytes of a message, whole even if it moves
    in parts, or of all its frames. Numbers that a message does not have are `NONE`.
    """

    __slots__ = (
        "immediate", "kind", "length", "message", "opcode", "packet", "psn", "source_qpn",
        "target_qpn",
    )  # fmt: skip

    def __init__(self, message: Message) -> None:
        self.message = message
        self.packet: RocePacket | None = None
        self.source_qpn = self.target_qpn = self.immediate = NONE
        self.psn = 0
        if isinstance(message, Frames):
            self._read_frames(message)
            return
        self.target_qpn, self.psn = message.target_qpn, message.psn
        if isinstance(message, Response):
            self.kind, self.opcode = "response", _answer(message)
            self.length = sum(view.nbytes for view in message.payload)
        else:
            self.source_qpn = message.source_qpn
            if isinstance(message, Request):
                self.kind, self.opcode, self.length = "request", message.op.name, message.length
                if message.op in _WITH_IMMEDIATE:
                    self.immediate = message.immediate
            else:
                self.kind, self.opcode, self.length = "datagram", "SEND", len(message.payload)
                if message.immediate is not None:
                    self.opcode, self.immediate = "SEND_IMM", message.immediate
        if not isinstance(message, Datagram) and message.part is not None:
            self.length = message.part.total

    def _read_frames(self, message: Frames) -> None:
        self.packet = packet = packet_of(message)
        if packet is None:
            self.kind, self.opcode = "frames", ""
            self.length = sum(len(frame) for train in message.trains for frame in train.frames)
        else:
            self.kind, self.opcode, self.psn = "packet", packet.name, packet.psn
            self.target_qpn, self.length = packet.target_qpn, packet.end - packet.start

    def beginning(self, length: int) -> bytes:
        """Return the first bytes of the message, at most `length`; empty for a later part."""
        message = self.message
        if isinstance(message, Frames):
            if self.packet is not None:
                return self.packet.payload[:length]
            frames = [frame for train in message.trains for frame in train.frames]
            return frames[0][:length] if frames else b""
        if isinstance(message, Datagram):
            return message.payload[:length]
        if message.part is not None and message.part.offset:
            return b""
        kept = b""
        for view in message.payload:
            kept += view[: length - len(kept)]
        return kept

    def cm_attribute(self) -> int:
        """Return the attribute of a MAD of the connection manager."""
        if self.target_qpn != GSI_QPN:
            return NONE
        data = self.beginning(MAD.size)
        if len(data) < MAD.size or MAD.get(data, "mgmt_class") != MgmtClass.CM:
            return NONE
        return MAD.get(data, "attr_id")

    def values(self) -> dict[str, Value]:
        """Return the message as fields of `Fact.RULE`."""
        message = self.message
        values: dict[str, Value] = {
            "message": self.kind, "operation": self.opcode, "psn": self.psn, "bytes": self.length,
            "qpn": max(self.source_qpn, 0), "dqpn": max(self.target_qpn, 0),
        }  # fmt: skip
        attribute = self.cm_attribute()
        if attribute != NONE:
            values |= {
                "message": "MAD CM", "operation": _CM_NAMES.get(attribute, hex(attribute))
            }  # fmt: skip
        if isinstance(message, Frames) and self.packet is None:
            count = sum(len(train.frames) for train in message.trains)
            values |= {"to": message.address.hex(":"), "count": count}
        elif isinstance(message, (Request, Response)) and message.part is not None:
            values["part"] = message.part.offset
        return values


def _answer(message: Response) -> str:
    kind = message.syndrome & _KIND_OF_SYNDROME
    if kind:
        return "RNR_NAK" if kind == Syndrome.RNR_NAK else "NAK"
    if message.read:
        return "READ_RESPONSE"
    return "ACK" if message.atomic_original is None else "ATOMIC_RESPONSE"


@dataclass(slots=True)
class Kept:
    """A message that waits for `targets`, in a direction of the rule's link; `size` in bytes."""

    message: Message
    source: FabricPort
    targets: Sequence[FabricPort]
    direction: str
    size: int = 0


def size_of(message: Message) -> int:
    """Count the bytes that a copy of a message takes."""
    if isinstance(message, (Request, Response)):
        return MESSAGE_BYTES + sum(view.nbytes for view in message.payload)
    return MESSAGE_BYTES + Traits(message).length


def own(message: Message) -> Message:
    """Return a copy of a message, which does not change when its sender changes its memory."""
    copy: Message
    if isinstance(message, (Request, Response)):
        copy = replace(message, payload=_own_bytes(message.payload))
    elif isinstance(message, Frames):
        trains = [Train(list(train.frames), train.good) for train in message.trains]
        copy = Frames(message.address, trains)
    else:
        copy = replace(message)
    copy.work = message.work
    return copy


def change(message: Message, how: Change) -> None:
    """Change the packet that a message is, as `flip` does."""
    packet = packet_of(message)
    if packet is not None and isinstance(message, Frames):
        message.trains = [Train([how.of(packet)])]


def flip(message: Message, *, hidden: bool) -> None:
    """Invert the lowest bit of a message's first byte of payload, in bytes of its own.

    Nothing else may have the message: a sender makes a new one when it sends again. The check sum
    of a packet is right again if that is `hidden`.
    """
    packet = packet_of(message)
    if packet is not None and isinstance(message, Frames):
        message.trains = [Train([damaged(packet, hidden=hidden)])]
        return
    if isinstance(message, (Request, Response)):
        message.payload = _own_bytes(message.payload)
        for view in message.payload[:1]:
            view[:1] = bytes((view[0] ^ 1,))
    elif isinstance(message, Frames):
        for train in message.trains[:1]:
            train.frames[:1] = [_flipped(frame, len(frame) - 1) for frame in train.frames[:1]]
    elif message.payload:
        message.payload = _flipped(message.payload, 0)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def _own_bytes(payload: Payload) -> Payload:
    return [memoryview(bytearray(view)) for view in payload]
