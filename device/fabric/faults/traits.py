"""The traits of a message by which fault rules match it, and copies of those that rules keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bluebridge.device.fabric.faults.roce_packets import Change, damaged, packet_of
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
from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.device.layout.net.mad import MAD, MgmtClass
from bluebridge.device.layout.net.roce import GSI_QPN, Op, Syndrome

NONE: Final = -1
"""Number of a trait that a message does not have."""

_KIND_OF_SYNDROME: Final = 0x60
_RESPONSES: Final = 0x100
_READ: Final = 1
_ATOMIC: Final = 2
_DATAGRAMS: Final = 0x200
_FRAMES: Final = 0x300
_PACKETS: Final = 0x400
_WITH_IMMEDIATE: Final = (Op.SEND_IMM, Op.WRITE_IMM)


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


def kind_of(message: Message) -> str:
    """Return the kind of a message, one of `fault_words.KINDS`."""
    if isinstance(message, Request):
        return "request"
    if isinstance(message, Response):
        return "response"
    if isinstance(message, Datagram):
        return "datagram"
    return "frames" if packet_of(message) is None else "packet"


def opcode_of(message: Message) -> str:
    """Return the operation of a request or packet, or an answer's kind; empty for frames."""
    if isinstance(message, Request):
        return message.op.name
    if isinstance(message, Response):
        return _answer(message)
    if isinstance(message, Datagram):
        return "SEND" if message.immediate is None else "SEND_IMM"
    packet = packet_of(message)
    return "" if packet is None else packet.name


def _answer(message: Response) -> str:
    kind = message.syndrome & _KIND_OF_SYNDROME
    if kind == Syndrome.RNR_NAK:
        return "RNR_NAK"
    if kind:
        return "NAK"
    if message.read:
        return "READ_RESPONSE"
    return "ACK" if message.atomic_original is None else "ATOMIC_RESPONSE"


def source_qpn(message: Message) -> int:
    """Return the QPN that a message comes from, `NONE` for frames."""
    return message.source_qpn if isinstance(message, (Request, Datagram)) else NONE


def target_qpn(message: Message) -> int:
    """Return the QPN that a message is for, `NONE` for frames."""
    if not isinstance(message, Frames):
        return message.target_qpn
    packet = packet_of(message)
    return NONE if packet is None else packet.target_qpn


def length_of(message: Message) -> int:
    """Count the bytes of a message, whole even if it moves in parts, or of all its frames."""
    if isinstance(message, Frames):
        packet = packet_of(message)
        if packet is not None:
            return packet.end - packet.start
        return sum(len(frame) for train in message.trains for frame in train.frames)
    if isinstance(message, Datagram):
        return len(message.payload)
    if message.part is not None:
        return message.part.total
    if isinstance(message, Request):
        return message.length
    return sum(view.nbytes for view in message.payload)


def immediate_of(message: Message) -> int:
    """Return the immediate value of a message, `NONE` where it has none."""
    if isinstance(message, Request):
        return message.immediate if message.op in _WITH_IMMEDIATE else NONE
    if isinstance(message, Datagram) and message.immediate is not None:
        return message.immediate
    return NONE


def beginning_of(message: Message, length: int) -> bytes:
    """Return the first bytes of a message, at most `length`; empty for a later part."""
    if isinstance(message, Frames):
        packet = packet_of(message)
        if packet is not None:
            return packet.payload[:length]
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


def cm_attribute(message: Message) -> int:
    """Return the attribute of a MAD of the connection manager, `NONE` for other messages."""
    if target_qpn(message) != GSI_QPN:
        return NONE
    data = beginning_of(message, MAD.size)
    if len(data) < MAD.size or MAD.get(data, "mgmt_class") != MgmtClass.CM:
        return NONE
    return MAD.get(data, "attr_id")


def text_of(message: Message) -> str:
    """Return a message in a few words, for the bus log."""
    if isinstance(message, Frames) and packet_of(message) is None:
        count = sum(len(train.frames) for train in message.trains)
        return f"frames to {message.address.hex(':')} count={count} bytes={length_of(message)}"
    attribute = cm_attribute(message)
    if attribute != NONE:
        return f"MAD CM {_cm_name(attribute)}"
    sender = source_qpn(message)
    origin = "" if sender == NONE else f" qpn={sender:#x}"
    return (
        f"{kind_of(message)} {opcode_of(message)}{origin} > qpn={target_qpn(message):#x} "
        f"psn={_psn(message):#x} bytes={length_of(message)}{_part_text(message)}"
    )


def _cm_name(attribute: int) -> str:
    try:
        return CmAttribute(attribute).name
    except ValueError:
        return hex(attribute)


def _psn(message: Message) -> int:
    if not isinstance(message, Frames):
        return message.psn
    packet = packet_of(message)
    return 0 if packet is None else packet.psn


def _part_text(message: Message) -> str:
    if isinstance(message, (Request, Response)) and message.part is not None:
        return f" part at {message.part.offset}"
    return ""


MESSAGE_BYTES: Final = 512
"""Approximate bytes of memory that a message takes besides its payload."""


@dataclass(slots=True)
class Kept:
    """A waiting message from `source` to `targets`, in a `direction` through the rule's link.

    `size` is the memory it takes, in bytes.
    """

    message: Message
    source: FabricPort
    targets: Sequence[FabricPort]
    direction: str
    size: int = 0


def size_of(message: Message) -> int:
    """Count the bytes that a copy of a message takes."""
    if isinstance(message, (Request, Response)):
        return MESSAGE_BYTES + sum(view.nbytes for view in message.payload)
    return MESSAGE_BYTES + length_of(message)


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


def flip(message: Message, *, hidden: bool = True) -> None:
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
