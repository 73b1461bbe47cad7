"""A completion queue without its card: reading it, its events, what a reset queue pair leaves."""

from __future__ import annotations

import struct
import threading
from abc import ABC, abstractmethod
from typing import Final

from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.event_queue import EventQueue
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.values import CompletionQueue, Wc

NUMBER: Final = 0xFFFFFF
_WORD: Final = struct.Struct(">I")
_PAGE: Final = 4096


class CompletionRing(ABC):
    """A ring of `1 << log` completions of `1 << shift` bytes, which hardware writes.

    The last byte of an entry has a bit, `owner`, that changes with each lap; the word at byte
    `named` says whose completion it is. Events go to `channel`. Cards set `cqn`, its number.
    """

    cqn: int

    def __init__(
        self,
        bus: Bus,
        channel: EventQueue[CompletionQueue] | None,
        log: int,
        shift: int,
        owner: int,
        named: int,
    ) -> None:
        self.channel = channel
        self._log, self._shift, self._owner, self._named = log, shift, owner, named
        self._mask = (1 << log) - 1
        self._last = (1 << shift) - 1
        self._ci = 0
        self._arm_sn = 1
        self._lock = threading.Lock()
        self._memory = bus.allocate(max(_PAGE, 1 << (log + shift)))
        self._data = self._memory.view
        self._record = bus.allocate(8, 8)
        self._record_words = self._record.view.cast("I")

    def poll(self, limit: int = 16) -> list[Wc]:
        """Return up to `limit` completions, oldest first; an empty list when there are none."""
        done: list[Wc] = []
        data, mask, shift, last, owner = (
            self._data, self._mask, self._shift, self._last, self._owner,
        )  # fmt: skip
        lap = mask + 1
        self._lock.acquire()
        try:
            ci = first = self._ci
            while len(done) < limit:
                offset = (ci & mask) << shift
                if (data[offset + last] & owner != 0) is not (ci & lap != 0):
                    break
                ci += 1
                wc = self._completion(offset)
                if wc is not None:
                    done.append(wc)
            if ci != first:
                self._consumed(ci)
        finally:
            self._lock.release()
        return done

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event at the next completion, or the next solicited or failed one.

        The event comes at once when completions are waiting that were not polled yet.
        """
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel")
        self._arm(self._arm_sn & 3, solicited_only)

    def notified(self) -> None:
        """Count an event of this queue: the next arming carries the next sequence number."""
        self._arm_sn += 1

    def discard(self, number: int) -> None:
        """Drop unread completions that name a queue pair, which was reset.

        Later completions move up into the gaps and get the owner bit of their new place
        (Linux `__mlx4_ib_cq_clean`, `__mlx5_ib_cq_clean`).
        """
        data, last = self._data, self._last
        with self._lock:
            end = self._ci
            while end - self._ci <= self._mask and self._written(end):
                end += 1
            removed = 0
            for index in range(end - 1, self._ci - 1, -1):
                offset = self._place(index)
                if _WORD.unpack_from(data, offset + self._named)[0] & NUMBER == number:
                    self._return_receive(number, offset)
                    removed += 1
                elif removed:
                    target = self._place(index + removed)
                    owner = data[target + last] & self._owner
                    kept = data[offset + last] & ~self._owner
                    data[target : target + last] = data[offset : offset + last]
                    data[target + last] = owner | kept
            if removed:
                self._consumed(self._ci + removed)

    def _place(self, index: int) -> int:
        return (index & self._mask) << self._shift

    def _written(self, index: int) -> bool:
        owner = self._data[self._place(index) + self._last] & self._owner
        return (owner != 0) is (index >> self._log & 1 != 0)

    def _consumed(self, index: int) -> None:
        self._ci = index
        self._record_words[0] = swap32(index & NUMBER)

    def _free(self) -> None:
        self._record_words.release()
        self._record.free()
        self._memory.free()

    @abstractmethod
    def _arm(self, sequence: int, solicited_only: bool) -> None:
        """Ask hardware for an event, with the low bits of the sequence number."""

    @abstractmethod
    def _completion(self, offset: int) -> Wc | None:
        """Return the completion of the entry there; None if its queue pair is gone."""

    @abstractmethod
    def _return_receive(self, number: int, offset: int) -> None:
        """Give the receive back that an entry there is of, which nobody will read."""
