"""The transport of a service: besides stores it can sleep until something happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from bluebridge.guest.protocols.ntrdma.engine.transport import Transport


@dataclass(slots=True)
class News:
    """The events since the last look: links down or up in order, signals, lost stores."""

    links: list[bool] = field(default_factory=list)
    signalled: bool = False
    failed: bool = False
    """Whether stores were not carried out, which ends what is between the peers."""


class BackEnd(Transport, Protocol):
    """A transport with descriptors to wait for. Not safe for threads."""

    seen_in_memory: bool
    """Whether stores of the peer are there without `serve`."""

    @property
    def wait_for(self) -> list[tuple[int, int]]:
        """Descriptors, each with the events of `select.poll` that want `serve`."""

    @property
    def pause(self) -> float:
        """The time in seconds to sleep at most."""

    def serve(self, silent: bool = False) -> News:
        """Take what has come; never waits, but for a device that is being reset.

        The peer has been `silent` for a while: the way to it may be broken. Raises `DeviceError`
        when the device is gone.
        """

    def drain(self) -> None:
        """Wait until all stores are carried out, for a second at most."""

    def close(self) -> None:
        """Let what was asked for leave, and give everything back."""
