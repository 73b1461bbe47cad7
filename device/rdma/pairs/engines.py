"""The interfaces of a queue pair's sending and answering engines, chosen by its role."""

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
        """Send what was collected during a walk of the ring that is over for now."""

    @abstractmethod
    def receive(self, response: Response) -> None:
        """Process an answer of the connected peer."""

    @abstractmethod
    def abort(self) -> None:
        """Complete everything outstanding as flushed, and cancel timers."""

    @abstractmethod
    def stop(self) -> None:
        """Forget everything outstanding without completing it, and cancel timers."""

    @abstractmethod
    def close(self) -> None:
        """Release the parts that refer to this engine, which is not used again after `stop`."""


class ReceiveEngine(ABC):
    """The answering half of a queue pair; `psn` is the PSN expected next, `msn` counts messages."""

    __slots__ = ("msn", "psn")

    psn: int
    msn: int

    @abstractmethod
    def receive(self, request: Request) -> None:
        """Process a request of the connected peer."""

    @abstractmethod
    def abort(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""
