"""Messages that fault rules keep waiting, as copies that own their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bluebridge.device.fabric.faults.changes import Change
from bluebridge.device.fabric.faults.roce_packets import damaged, packet_of
from bluebridge.device.fabric.faults.traits import length_of
from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import Frames, Message, Payload, Request, Response, Train

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
