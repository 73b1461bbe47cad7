"""The interface of engines to the steering of a face: who gets a frame or a datagram."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from bluebridge.device.fabric.messages import Datagram, Frames, Train
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.rules import Member
from bluebridge.device.rdma.ports.port import Port


class Delivery:
    """A queue pair that gets a frame, and what is told of its flow in the completion there.

    `hash` is 0 without one; `hash_type` and `mark` are numbers of the face.
    """

    __slots__ = ("hash", "hash_type", "mark", "qpn")

    def __init__(self, qpn: int, hashed: int = 0, hash_type: int = 0, mark: int = 0) -> None:
        self.qpn = qpn
        self.hash = hashed
        self.hash_type = hash_type
        self.mark = mark


class Steering(ABC):
    """The decisions of one adapter on what its ports receive."""

    @abstractmethod
    def frame(
        self, port: Port, train: Train, headers: FrameHeaders, message: Frames
    ) -> Sequence[Delivery]:
        """Return who gets a copy of a train of `message`, whose frames all have these headers.

        A frame with a delivery to a queue pair that does not receive counts as dropped, one without
        any delivery as filtered.
        """

    @abstractmethod
    def miss(self, qpn: int, frames: int) -> None:
        """Take note that so many frames for a queue pair found no receive as they came."""

    @abstractmethod
    def group(self, port: Port, message: Datagram) -> Sequence[Member]:
        """Return the members that get a copy of a datagram to a group."""

    @abstractmethod
    def datagram(self, port: Port, message: Datagram) -> Sequence[Member] | None:
        """Return who gets a datagram to one queue pair; None where it is for that one."""

    @abstractmethod
    def forget(self, qpn: int) -> None:
        """Forget what only the queue pair `qpn`, which is gone, was steered by."""
