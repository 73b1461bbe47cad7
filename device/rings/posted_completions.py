"""Completions on their way into completion queues: faults by name, queues that are gone or full."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queues import Completions
from bluebridge.device.rings.completion_ring import CompletionRing, CompletionRings


class PostedCompletions(Completions):
    """The writer of the completions of one queue, whose card makes the entries.

    A completion queue that does not exist when a completion is due costs a line in the log. One
    that takes no entry any more calls `lost`, later, in the server's loop.
    """

    def __init__(
        self, bus: HostBus, faults: ArmedFaults, cqs: CompletionRings[CompletionRing], number: int
    ) -> None:
        self._bus = bus
        self._faults = faults
        self._cqs = cqs
        self._number = number
        self._losing = False

    def _post(
        self, cqn: int, cqe: bytes, solicited: bool = False, error: bool = False, when: int = 0
    ) -> None:
        """Write the entry of an event at `when`, monotonic time in ns; 0 is now.

        Stamps tell when something happened: software compares those of both ends.
        """
        queue = self._cqs.get(cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=cqn)
            return
        if queue.timestamps:
            cqe = queue.stamp(cqe, when or monotonic_ns())
        if self._faults.completions and self._faults.has_completion(self._number):
            self._post_faulty(queue, cqe, solicited, error)
        else:
            queue.post(cqe, solicited, error)
        if queue.broken:
            self._lose()

    def _post_many(self, cqn: int, entries: list[bytes], times: Sequence[int] = ()) -> None:
        """Write the entries of events at these `times`, as in `_post`."""
        queue = self._cqs.get(cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=cqn)
            return
        if queue.timestamps:
            now, plain = monotonic_ns(), entries
            entries = [
                queue.stamp(each, when or now) for each, when in zip(plain, times, strict=True)
            ]
        if self._faults.completions and self._faults.has_completion(self._number):
            for entry in entries:
                self._post_faulty(queue, entry, False, False)
        else:
            queue.post_many(entries)
        if queue.broken:
            self._lose()

    def _post_faulty(self, queue: CompletionRing, cqe: bytes, solicited: bool, error: bool) -> None:
        """Write what the armed faults make of an entry, now and later."""
        for seconds, entry in self._faults.completion(self._number, cqe):
            if seconds:
                self._write_later(seconds, queue, entry, solicited, error)
            else:
                queue.post(entry, solicited, error or entry != cqe)

    def _write_later(
        self, seconds: float, queue: CompletionRing, cqe: bytes, solicited: bool, error: bool
    ) -> None:
        """Write an entry then, unless the queue is gone: drivers know no other number."""

        def write() -> None:
            alive = self._faults.role_of(self._number) is not None
            if alive and self._cqs.get(queue.cqn) is queue:
                queue.post(cqe, solicited, error)
                if queue.broken:
                    self._lose()

        self._bus.call_later(seconds, write)

    def _lose(self) -> None:
        """Tell the queue later of a lost completion, as its engines are busy now."""
        if not self._losing:
            self._losing = True
            self._bus.call_soon(self._tell_loss)

    def _tell_loss(self) -> None:
        self._losing = False
        self.lost()
