"""Counters of what queue pairs sent and received, which their paths name (QUERY_IF_STAT)."""

from __future__ import annotations

from bluebridge.device.rdma.ports.counters import InterfaceCounter


class InterfaceCounters:
    """The `count` counters of one adapter, `ports/N/counters` of sysfs on RoCE.

    Linux `ib/mad.c: iboe_process_mad`. The last one is the sink: drivers name it where they do not
    count, and never read it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.reset()

    def reset(self) -> None:
        """Replace all counters by zeroed ones; queue pairs that are gone keep their old ones."""
        self._counters = [InterfaceCounter() for _ in range(self._count)]

    def of(self, index: int) -> InterfaceCounter:
        """Return counter `index`, in which the queue pairs that name it count."""
        return self._counters[index]
