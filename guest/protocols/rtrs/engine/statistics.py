"""Counts of a path, as the files below `stats` show them."""

from __future__ import annotations


class Statistics:
    """`reconnects` starts at -1 on a client: the first connect makes it 0, as in the kernel."""

    def __init__(self, reconnects: int = 0) -> None:
        self.reads = 0
        self.read_bytes = 0
        self.writes = 0
        self.write_bytes = 0
        self.inflight = 0
        """The requests that were started under the policy min-inflight, as in the kernel."""
        self.failovers = 0
        self.reconnects = reconnects
        self.failed_reconnects = 0

    def reset(self) -> None:
        """Set everything but `inflight` to zero."""
        self.reads = self.read_bytes = 0
        self.writes = self.write_bytes = 0
        self.failovers = self.reconnects = self.failed_reconnects = 0

    def count_read(self, length: int) -> None:
        """Count a read; `length` is that of data and user message."""
        self.reads += 1
        self.read_bytes += length

    def count_write(self, length: int) -> None:
        """Count a write; `length` is that of data and user message."""
        self.writes += 1
        self.write_bytes += length
