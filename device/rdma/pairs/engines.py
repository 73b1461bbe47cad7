"""The interfaces of the two halves of a queue pair; which class it has depends on its role."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.rdma.work import SendWork, WorkError


class SendEngine(ABC):
    """The sending half of a queue pair. `next_psn` is the PSN of the next request."""

    __slots__ = ("next_psn",)

    next_psn: int

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True while no request waits for its answer."""

    @abstractmethod
    def execute(self, work: SendWork) -> None:
        """Carry out a work request, or hold it when it must wait."""

    @abstractmethod
    def refuse(self, index: int, error: WorkError) -> None:
        """Complete the entry with this free-running number, which makes no sense, in error."""

    @abstractmethod
    def blocked(self) -> bool:
        """Return True while the next entry has to wait; the engine runs the queue afterwards."""

    @abstractmethod
    def finish(self) -> None:
        """The walk of the ring is over for now: send what was collected during it."""

    @abstractmethod
    def receive(self, response: Response) -> None:
        """An answer of the connected peer."""

    @abstractmethod
    def abort(self) -> None:
        """Complete everything outstanding as flushed; forget timers."""

    @abstractmethod
    def stop(self) -> None:
        """Forget everything outstanding without a trace, timers too."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the parts that refer to this engine: after `stop`, it is not used again."""


class ReceiveEngine(ABC):
    """The answering half of a queue pair. `psn` is the one expected next, `msn` counts messages."""

    __slots__ = ("msn", "psn")

    psn: int
    msn: int

    @abstractmethod
    def receive(self, request: Request) -> None:
        """A request of the connected peer."""

    @abstractmethod
    def abort(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""
