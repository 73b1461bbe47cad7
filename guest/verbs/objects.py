"""Protocols of the objects that work requests and queue pairs name: queues and memory regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bluebridge.guest.verbs.values import RecvWr, Wc


class CompletionQueue(Protocol):
    """A queue of the completions of work requests, in order."""

    @property
    def cqn(self) -> int:
        """The number of the completion queue."""

    @property
    def channel(self) -> CompletionChannel | None:
        """The channel that receives the queue's events, if there is one."""

    def poll(self, limit: int = 16) -> list[Wc]:
        """Return up to `limit` completions, oldest first; an empty list when there are none."""

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event at the next completion, or the next solicited or failed one.

        The event comes at once when completions are waiting that were not polled yet. Raises
        `VerbsError` without a channel.
        """

    def destroy(self) -> None:
        """Free the queue, whose queue pairs must be gone; a second call does nothing."""


class CompletionChannel(Protocol):
    """A source of events that name completion queues with a completion after `req_notify`."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when there is an event.

        Then call `get_event(0)` until it gives None.
        """

    def get_event(self, timeout: float | None = None) -> CompletionQueue | None:
        """Return the queue of the next event; waits `timeout` seconds, with None without end.

        Returns None after the time has passed, after `wake` and once the channel is closed. Raises
        `DeviceLost` within seconds when the device is lost.
        """

    def wake(self) -> None:
        """Make one waiting `get_event`, or the next one, return None."""

    def close(self) -> None:
        """Close the channel; threads that wait in `get_event` return."""


class SharedReceiveQueue(Protocol):
    """A queue of receive requests that several queue pairs take from."""

    @property
    def srqn(self) -> int:
        """The number of the shared receive queue."""

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""

    def destroy(self) -> None:
        """Free the queue, whose queue pairs must be gone."""


class MemoryRegion(Protocol):
    """A piece of memory that is registered with a device."""

    @property
    def lkey(self) -> int:
        """The key for local work requests."""

    @property
    def rkey(self) -> int:
        """The key that a peer needs for RDMA to the region."""

    def close(self) -> None:
        """Deregister the region; a second call does nothing."""


class FastRegistration(MemoryRegion, Protocol):
    """A region that REG_MR work requests fill and LOCAL_INV or a peer's SEND_WITH_INV empties."""

    @property
    def max_pages(self) -> int:
        """The number of pages that a registration may have."""

    def next_key(self) -> int:
        """Count up the key's low byte for the next REG_MR and return the new key.

        As Linux's ib_update_fast_reg_key.
        """
