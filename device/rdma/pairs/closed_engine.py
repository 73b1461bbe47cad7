"""The sending half of a queue pair that is gone."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Response
from bluebridge.device.rdma.pairs.engines import SendEngine
from bluebridge.device.rdma.work import SendWork, WorkError


class ClosedEngine(SendEngine):
    """Stands where an engine was, and does nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        self.next_psn = 0

    @property
    def idle(self) -> bool:
        """Nothing waits."""
        return True

    def execute(self, work: SendWork) -> None:
        """There is no ring to come from."""

    def refuse(self, index: int, error: WorkError) -> None:
        """There is no ring to come from."""

    def blocked(self) -> bool:
        """Nothing is carried out."""
        return True

    def finish(self) -> None:
        """Nothing was collected."""

    def receive(self, response: Response) -> None:
        """Nothing was asked."""

    def abort(self) -> None:
        """Nothing is outstanding."""

    def stop(self) -> None:
        """Nothing is outstanding."""

    def close(self) -> None:
        """It refers to nothing."""


CLOSED: Final = ClosedEngine()
