"""The sending half of a queue pair that is gone."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Response
from bluebridge.device.rdma.pairs.engines import SendEngine
from bluebridge.device.rdma.work import SendWork, WorkError


class ClosedEngine(SendEngine):
    """A send engine that does nothing, in place of the engine of a queue pair that is gone."""

    __slots__ = ()

    def __init__(self) -> None:
        self.next_psn = 0

    @property
    def idle(self) -> bool:
        """Always true: a closed engine has no request under way."""
        return True

    def execute(self, work: SendWork) -> None:
        """Do nothing: a closed engine gets no work."""

    def refuse(self, index: int, error: WorkError) -> None:
        """Do nothing: a closed engine gets no work."""

    def blocked(self) -> bool:
        """Always true: a closed engine carries nothing out."""
        return True

    def finish(self) -> None:
        """Do nothing: a closed engine has collected nothing to send."""

    def receive(self, response: Response) -> None:
        """Ignore an answer: a closed engine has sent no request."""

    def abort(self) -> None:
        """Do nothing: a closed engine has nothing outstanding."""

    def stop(self) -> None:
        """Do nothing: a closed engine has nothing outstanding."""

    def close(self) -> None:
        """Do nothing: a closed engine has no parts that refer to it."""


CLOSED: Final = ClosedEngine()
