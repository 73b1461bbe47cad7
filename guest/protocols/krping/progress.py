"""The progress of a krping run, which completions and events of the connection change."""

from __future__ import annotations

from bluebridge.guest.protocols.krping.log import Log
from bluebridge.guest.protocols.krping.option_string import Options
from bluebridge.guest.protocols.krping.state import State
from bluebridge.guest.protocols.krping.stats import Latencies, Stats


class Progress:
    """The state, statistics and outcome of one run.

    `remote` is the peer's buffer as it was advertised last: address, rkey, length.
    """

    def __init__(self, options: Options, log: Log) -> None:
        self.options = options
        self.log = log
        self.state = State.IDLE
        self.stats = Stats()
        self.latencies = Latencies()
        self.iterations = 0
        self.validated = 0
        self.failure = ""
        self.disconnected = False
        self.remote = (0, 0, 0)

    def fail(self, reason: str) -> None:
        """Enter ERROR, which ends every wait; the first reason is kept."""
        self.state = State.ERROR
        self.failure = self.failure or reason
