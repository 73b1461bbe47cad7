"""Protocols of the objects that work requests and queue pairs name: queues and memory regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bluebridge.guest.verbs.values import RecvWr, Wc


class CompletionQueue(Protocol):
    """Completions of work requests, in order."""

    @property
    def cqn(self) -> int:
        """The number of the completion queue."""

    @property
    def channel(self) -> CompletionChannel | None:
        """The channel that its events go to."""

    def poll(self, limit: int = 16) -> list[Wc]:
        """Up to `limit` completions, oldest first; an empty list when there are none."""

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event at the next completion, or the next solicited or failed one.

        The event comes at once when completions are waiting that were not polled yet. Raises
        `VerbsError` without a channel.
        """

    def destroy(self) -> None:
        """Give it back; its queue pairs must be gone. A second call does nothing."""


class CompletionChannel(Protocol):
    """Gives the completion queues that had a completion after `req_notify`."""

    def fileno(self) -> int:
        """Becomes readable when there is an event; then call `get_event(0)` until it gives None."""

    def get_event(self, timeout: float | None = None) -> CompletionQueue | None:
        """The next event; waits up to `timeout` seconds (None: without end).

        None after the time has passed, after `wake` and once the channel is closed. Raises
        `DeviceLost` within seconds of the device's end.
        """

    def wake(self) -> None:
        """Make one waiting `get_event`, or the next one, return None."""

    def close(self) -> None:
        """Give it back; waiting threads return."""


class SharedReceiveQueue(Protocol):
    """A queue of receive requests that several queue pairs take from."""

    @property
    def srqn(self) -> int:
        """The number of the shared receive queue."""

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""

    def destroy(self) -> None:
        """Give it back; its queue pairs must be gone."""


class MemoryRegion(Protocol):
    """A piece of memory that is registered with a device."""

    @property
    def lkey(self) -> int:
        """Key for local use."""

    @property
    def rkey(self) -> int:
        """Key to give to a peer."""

    def close(self) -> None:
        """Deregister; a second call does nothing."""


class FastRegistration(MemoryRegion, Protocol):
    """A region that REG_MR work requests fill and LOCAL_INV or a peer's SEND_WITH_INV empties."""

    @property
    def max_pages(self) -> int:
        """The number of pages that a registration may have."""

    def next_key(self) -> int:
        """Change the key's low byte for the next REG_MR (ib_update_fast_reg_key); the new key."""
