"""The answering half of a queue pair without a connection, which answers nothing."""

from __future__ import annotations

from bluebridge.device.fabric.messages import Request
from bluebridge.device.rdma.pairs.engines import ReceiveEngine


class UnconnectedResponder(ReceiveEngine):
    """A responder that ignores requests and keeps the PSN that software set; `msn` stays 0."""

    __slots__ = ()

    def __init__(self) -> None:
        self.psn = 0
        self.msn = 0

    def receive(self, request: Request) -> None:
        """Ignore a request: only connected queue pairs get any."""

    def abort(self) -> None:
        """Do nothing: a pair without a connection receives no message in parts."""
