"""The halves of a queue pair, which its role chooses: these do nothing, others derive from them."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.rdma.work import SendWork, WorkError


class SendEngine:
    """The sending half of a queue pair. `next_psn` is the PSN of the next request.

    This one carries nothing out, as that of a queue pair that is gone.
    """

    def __init__(self) -> None:
        self.next_psn = 0

    @property
    def idle(self) -> bool:
        """True while no request waits for its answer."""
        return True

    def execute(self, work: SendWork) -> None:
        """Carry out a work request, or hold it when it must wait."""

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete the entry with this free-running number, which makes no sense, in error."""

    def blocked(self) -> bool:
        """Return True while the next entry has to wait; the engine runs the queue afterwards."""
        return False

    def finish(self) -> None:
        """Send what was collected during a walk of the ring that is over for now."""

    def receive(self, response: Response) -> None:
        """Process an answer of the connected peer."""

    def abort(self) -> None:
        """Complete everything outstanding as flushed, and cancel timers."""

    def stop(self) -> None:
        """Forget everything outstanding without completing it, and cancel timers."""


CLOSED: Final = SendEngine()


class ReceiveEngine:
    """The answering half of a queue pair; `psn` is the PSN expected next, `msn` counts messages.

    This one answers nothing, as that of a queue pair without a connection; its `psn` is what
    software set, its `msn` stays 0.
    """

    def __init__(self) -> None:
        self.psn = 0
        self.msn = 0

    def receive(self, request: Request) -> None:
        """Process a request of the connected peer."""

    def abort(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""

    def stop(self) -> None:
        """Forget the requests that wait."""
