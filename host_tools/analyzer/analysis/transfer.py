"""A work request and the transactions on both buses that it caused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction


class PostedBy(Enum):
    """The ways in which a work request is posted; the values are the words of the views."""

    DOORBELL = "doorbell"
    BLUEFLAME = "BlueFlame"
    FALLBACK = "fallback"  # stored into a BlueFlame page, refused there and fetched
    EARLY = "fetched early"  # fetched from the ring before its BlueFlame stores arrived
    STORES = "stores"  # NTRDMA: the processor stored into the peer's memory
    FOUND = "found"  # fetched behind another one in the ring: no write of its own


@dataclass(slots=True)
class Transfer:
    """A work request: `transactions` in the order of the log, a tree by their `parent`.

    `index` counts slots of the send queue since RESET; `number` counts work requests in the order
    in which the device began them. `opcode` is a `SendOpcode` name, empty if the entry was not in
    the log; `length` the bytes of the message, `inline` those of them inside the entry. `status` is
    empty, `OK` or the syndrome of the send completion; `notes` are the log's notes about it,
    `noted` their events. `given`: it was given out, nothing is added any more.
    """

    device: str
    qpn: int
    index: int
    number: int = 0
    posted_by: PostedBy = PostedBy.FOUND
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
    noted: list[Transaction] = field(default_factory=list)
    given: bool = False

    def take(self, one: Transaction) -> None:
        """Add a transaction; one that is already in an activity is marked as repeated."""
        if one.given:
            one = replace(one, repeated=True)
        one.taken = True
        self.transactions.append(one)

    def take_note(self, one: Transaction) -> None:
        """Add a note about the work request, with the number of its event."""
        self.notes.append(one.text)
        if not one.given:
            one.taken = True
            self.noted.append(one)

    @property
    def start(self) -> float:
        """Time of the first transaction, in seconds since the log began."""
        return self.transactions[0].time

    @property
    def end(self) -> float:
        """Time of the last transaction, in seconds since the log began."""
        return max(each.time for each in self.transactions)

    @property
    def wall_us(self) -> float:
        """Microseconds from the first transaction to the last, by the server's clock."""
        return (self.end - self.start) * 1e6

    def of(self, *roles: Role, remote: bool | None = None) -> list[Transaction]:
        """Return the transactions with one of the roles; with `remote` only those of that side."""
        return [
            each
            for each in self.transactions
            if each.role in roles and (remote is None or each.remote == remote)
        ]

    def count(self, *roles: Role, remote: bool | None = None) -> int:
        """Return the number of transactions that `of` returns."""
        return len(self.of(*roles, remote=remote))

    def on_bus(self) -> list[Transaction]:
        """Return the transactions that cross a PCIe bus."""
        return [each for each in self.transactions if each.tlp not in (Tlp.MESSAGE, Tlp.NONE)]

    def tree(self) -> Iterator[tuple[int, int]]:
        """Yield the places in `transactions` with their depth, parents before children."""
        return tree_of(self.transactions)


def tree_of(transactions: Sequence[Transaction]) -> Iterator[tuple[int, int]]:
    """Yield the places of transactions with their depth, parents before children."""
    children: dict[int | None, list[int]] = {}
    for place, each in enumerate(transactions):
        children.setdefault(each.parent, []).append(place)
    waiting = [(place, 0) for place in reversed(children.get(None, []))]
    while waiting:
        place, depth = waiting.pop()
        yield place, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(place, []))]


class TimeModel(Protocol):
    """A model that computes times, such as `bluebridge.host_tools.analyzer.model.Model`."""

    @property
    def name(self) -> str:
        """Name of the profile."""

    def times(self, transfer: Transfer) -> Sequence[float | None]:
        """Return the microseconds from posting until each is done; None for one not timed."""

    def cpu(self, transfer: Transfer) -> float:
        """Return the modelled microseconds that posting costs the sender's processor."""


def modelled(transfer: Transfer, model: TimeModel) -> float | None:
    """Return the modelled microseconds up to the last transaction; None if none is timed."""
    return max((time for time in model.times(transfer) if time is not None), default=None)
