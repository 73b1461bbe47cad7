"""The queues of a queue pair as its engines see them; a face has them in guest memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.rdma.work import ReceiveWork


class SendQueue(ABC):
    """The send queue, which hands its entries to the engine one by one."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> None:
        """Carry out what is posted, up to a budget; the rest follows soon."""

    @abstractmethod
    def go_on(self) -> None:
        """Carry out or flush what is posted, if a doorbell ever said that something is."""


class ReceiveQueue(ABC):
    """A queue that receives are taken from."""

    __slots__ = ()

    @abstractmethod
    def waiting(self) -> bool:
        """Return True if a receive is posted."""

    @abstractmethod
    def take(self) -> ReceiveWork | None:
        """The next receive, which is consumed; None when there is none. Raises `DmaError`."""

    @abstractmethod
    def take_many(self, count: int) -> list[ReceiveWork]:
        """The next receives, at most `count`, which are consumed. Raises `DmaError`."""


class OwnReceiveQueue(ReceiveQueue):
    """The receive queue of one queue pair."""

    __slots__ = ()

    @abstractmethod
    def drop(self) -> int:
        """Consume the next receive without reading it, to flush it; returns its index."""


class SharedReceiveQueue(ReceiveQueue):
    """A queue that several queue pairs take from; `cqn` is where those of XRC complete."""

    __slots__ = ("cqn", "pd", "srqn", "xrcd")

    srqn: int
    pd: int
    xrcd: int
    cqn: int


class SharedReceiveQueues(ABC):
    """The shared receive queues of one adapter."""

    __slots__ = ()

    @abstractmethod
    def get(self, srqn: int) -> SharedReceiveQueue | None:
        """The queue `srqn` if hardware owns it."""
