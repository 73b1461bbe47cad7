"""Messages that fault rules keep waiting, as copies that own their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

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


def _own_bytes(payload: Payload) -> Payload:
    return [memoryview(view.tobytes()) for view in payload]
