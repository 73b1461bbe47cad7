"""Completions on their way into completion queues: faults by name, queues that are gone or full."""

from __future__ import annotations

from abc import abstractmethod

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queues import Completions
from bluebridge.device.rings.completion_ring import CompletionRing


class PostedCompletions(Completions):
    """The writer of the completions of one queue, whose card makes the entries.

    A completion queue that does not exist when a completion is due costs a line in the log. One
    that takes no entry any more calls `lost`, later, in the server's loop.
    """

    def __init__(self, bus: HostBus, faults: ArmedFaults, number: int) -> None:
        self._bus = bus
        self._faults = faults
        self._number = number
        self._losing = False

    @abstractmethod
    def _queue(self, cqn: int) -> CompletionRing | None:
        """Return the completion queue with that number."""

    def _post(self, cqn: int, cqe: bytes, solicited: bool = False, error: bool = False) -> None:
        if self._faults.completions and self._faults.has_completion(self._number):
            self._post_faulty(cqn, cqe, solicited, error)
        else:
            self._write(cqn, cqe, solicited, error)

    def _post_many(self, cqn: int, entries: list[bytes]) -> None:
        if self._faults.completions and self._faults.has_completion(self._number):
            for entry in entries:
                self._post_faulty(cqn, entry, False, False)
            return
        queue = self._queue(cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=cqn)
            return
        queue.post_many(entries)
        if queue.broken:
            self._lose()

    def _post_faulty(self, cqn: int, cqe: bytes, solicited: bool, error: bool) -> None:
        """Write what the armed faults make of an entry, now and later."""
        for seconds, entry in self._faults.completion(self._number, cqe):
            if seconds:
                self._write_later(seconds, cqn, entry, solicited, error)
            else:
                self._write(cqn, entry, solicited, error or entry != cqe)

    def _write_later(
        self, seconds: float, cqn: int, cqe: bytes, solicited: bool, error: bool
    ) -> None:
        """Write an entry then, unless the queue is gone: drivers know no other number."""
        queue = self._queue(cqn)

        def write() -> None:
            alive = self._faults.role_of(self._number) is not None
            if alive and self._queue(cqn) is queue:
                self._write(cqn, cqe, solicited, error)

        self._bus.call_later(seconds, write)

    def _write(self, cqn: int, cqe: bytes, solicited: bool, error: bool) -> None:
        queue = self._queue(cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=cqn)
            return
        queue.post(cqe, solicited, error)
        if queue.broken:
            self._lose()

    def _lose(self) -> None:
        """Tell the queue later of a lost completion, as its engines are busy now."""
        if not self._losing:
            self._losing = True
            self._bus.call_soon(self._tell_loss)

    def _tell_loss(self) -> None:
        self._losing = False
        self.lost()
