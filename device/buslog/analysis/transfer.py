"""One work request and everything that crossed the two buses because of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction


class Path(Enum):
    """How the device learned of the work request."""

    DOORBELL = "doorbell"
    BLUEFLAME = "BlueFlame"
    FALLBACK = "fallback"  # stored into a BlueFlame page, refused there and fetched
    EARLY = "fetched early"  # found in the ring before its stores into a BlueFlame page came
    FOUND = "found"  # in the ring, behind another one: no write of its own


@dataclass(slots=True)
class Transfer:
    """The tree of a work request: `transactions` in the order of the log, each with its `parent`.

    `index` counts slots of the send queue since RESET; `number` is the place in the order in which
    the device began. `opcode` is a `SendOpcode` name, empty if the entry was not in the log;
    `length` the bytes of the message, `inline` those that came inside the entry. `status` is empty,
    `OK` or the syndrome of the send completion; `notes` what the device said about it, in words.
    """

    device: str
    qpn: int
    index: int
    number: int = 0
    path: Path = Path.FOUND
    opcode: str = ""
    length: int = 0
    inline: int = 0
    entry_bytes: int = 0
    peer: str = ""
    peer_qpn: int = 0
    psn: int | None = None
    status: str = ""
    notes: list[str] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    @property
    def start(self) -> float:
        """Time of the first transaction."""
        return self.transactions[0].time

    @property
    def end(self) -> float:
        """Time of the last one."""
        return max(each.time for each in self.transactions)

    @property
    def wall_us(self) -> float:
        """From the first transaction to the last, in microseconds by the server's clock."""
        return (self.end - self.start) * 1e6

    def of(self, *roles: Role, remote: bool | None = None) -> list[Transaction]:
        """Those with one of the roles; with `remote` only those of that side."""
        return [
            each
            for each in self.transactions
            if each.role in roles and (remote is None or each.remote == remote)
        ]

    def count(self, *roles: Role, remote: bool | None = None) -> int:
        """How many `of` finds."""
        return len(self.of(*roles, remote=remote))

    def on_bus(self) -> list[Transaction]:
        """Without messages of the fabric and words of the device."""
        return [each for each in self.transactions if each.tlp not in (Tlp.MESSAGE, Tlp.NONE)]

    def tree(self) -> Iterator[tuple[int, int]]:
        """Places in `transactions` with their depth, parents before children."""
        children: dict[int | None, list[int]] = {}
        for place, each in enumerate(self.transactions):
            children.setdefault(each.parent, []).append(place)
        waiting = [(place, 0) for place in reversed(children.get(None, []))]
        while waiting:
            place, depth = waiting.pop()
            yield place, depth
            waiting += [(child, depth + 1) for child in reversed(children.get(place, []))]


class TimeModel(Protocol):
    """What gives transactions a modelled time: a profile of `bluebridge.device.buslog.model`."""

    @property
    def name(self) -> str:
        """Name of the profile."""

    def times(self, transfer: Transfer) -> Sequence[float | None]:
        """Modelled microseconds at which each of `transactions` is done, 0 when software posts.

        None for those the model says nothing about.
        """

    def cpu(self, transfer: Transfer) -> float:
        """Modelled microseconds that posting costs the sender's processor."""
