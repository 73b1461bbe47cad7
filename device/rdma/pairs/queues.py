"""The interfaces of a queue pair's queues to engines; a face implements them in guest memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.rdma.work import ReceiveWork


class SendQueue(ABC):
    """The send queue of a queue pair, which hands its entries to the engine one by one."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> None:
        """Carry out posted entries up to a budget; the rest follows soon."""

    @abstractmethod
    def go_on(self) -> None:
        """Carry out or flush posted entries, if a doorbell ever rang for this queue."""


class ReceiveQueue(ABC):
    """A queue that receives are taken from."""

    __slots__ = ()

    @abstractmethod
    def waiting(self) -> bool:
        """Return True if a receive is posted."""

    @abstractmethod
    def take(self) -> ReceiveWork | None:
        """Consume and return the next receive; None when there is none. Raises `DmaError`."""

    @abstractmethod
    def take_many(self, count: int) -> list[ReceiveWork]:
        """Consume and return the next receives, at most `count`. Raises `DmaError`."""


class OwnReceiveQueue(ReceiveQueue):
    """The receive queue of one queue pair."""

    __slots__ = ()

    @abstractmethod
    def drop(self) -> int:
        """Consume the next receive without reading it, to flush it; returns its index."""


class SharedReceiveQueue(ReceiveQueue):
    """A receive queue of several queue pairs; XRC receives complete in the CQ number `cqn`."""

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
        """Return the shared receive queue `srqn`; None unless hardware owns it."""
