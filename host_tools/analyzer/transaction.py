"""Bus transactions as a PCIe analyzer shows them, and work requests with those they caused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from bluebridge.device.layout.events import Told

MAX_PAYLOAD = 256
"""Bytes of one write or completion at most (the study's figure 4.5); others are split."""
MAX_READ = 512
"""Bytes of one read request at most (figure 4.5); others are split at multiples of it."""
OK = "OK"
"""Status of an activity or work request that succeeded."""
VECTORS = 2048
"""Vectors of an MSI-X table at most."""


class Tlp(Enum):
    """Kinds of bus transactions; the values are the words of a PCIe analyzer."""

    MEMORY_WRITE = "Memory Write"
    MEMORY_READ = "Memory Read"
    COMPLETION = "Completion with data"
    CONFIG_READ = "Config Read"
    CONFIG_WRITE = "Config Write"
    MESSAGE = "Message"  # leaves the port: the fabric's, not the bus's
    NONE = "-"  # no transaction: a command, a reset, a note


class Role(Enum):
    """The purposes of transactions; the values are the words of the views."""

    DOORBELL = "doorbell"
    BLUEFLAME = "BlueFlame write"
    ENTRY = "BlueFlame entry"  # the device took it from the register: no transaction
    WQE = "WQE read"
    PAYLOAD_READ = "payload read"
    REQUEST = "request"
    RECEIVE_WQE = "receive WQE read"
    PAYLOAD_WRITE = "payload write"
    RESPONSE = "response"
    CQE = "CQE"
    EQE = "EQE"
    INTERRUPT = "interrupt"
    DOORBELL_RECORD = "doorbell record read"
    CQ_ARM = "CQ doorbell"
    EQ_ARM = "EQ doorbell"
    REGISTER_READ = "register read"
    REGISTER_WRITE = "register write"
    CONFIG = "config access"
    TABLE = "table access"  # translations, protection entries, mailboxes, page lists
    DESCRIPTOR = "descriptor read"
    COPY_READ = "copy read"
    COPY_WRITE = "copy write"
    COMPLETION_WORD = "completion word"
    WINDOW_STORE = "window store"
    WINDOW_LOAD = "window load"
    WINDOW = "window access"
    OTHER = "other"
    COMMAND = "command"
    RESET = "reset"
    NOTE = "note"
    LINK = "link"
    CONTROL = "control"


@dataclass(slots=True)
class Transaction:
    """`upstream` is from the adapter to its host; `time` in seconds since the log began.

    `number` and `last` are those of its first and last event: stores of one line are one write.
    `data` may be only the beginning of `length` bytes. `obj` is the number of the object (QPN, CQN,
    EQN). `remote`: on the peer's bus, not on that of the work request's poster. `repeated`: it is
    listed with an earlier work request, too, and counted there. `parent` is the index in
    `Transfer.transactions` of its cause. `text` says more than the role; `told` is a fact.
    `taken`: it is in a work request, or joined to a store that may be. `given`: it was given out in
    an activity. `noun` is the kind of queue that `obj` is unless the role says so.
    """

    number: int
    time: float
    device: str
    tlp: Tlp
    role: Role
    upstream: bool
    address: int
    length: int
    data: bytes | bytearray
    obj: int = 0
    bar: int = 0
    text: str = ""
    last: int = 0
    stores: int = 1
    remote: bool = False
    repeated: bool = False
    parent: int | None = field(default=None)
    taken: bool = False
    given: bool = False
    told: Told | None = field(default=None, compare=False)
    noun: str = "QP"

    @property
    def on_bus(self) -> bool:
        """Whether the transaction crosses the PCIe bus."""
        return self.tlp not in (Tlp.MESSAGE, Tlp.NONE)

    @property
    def is_vector(self) -> bool:
        """Whether `address` is an MSI-X vector, whose address and data QEMU alone knows."""
        return self.role is Role.INTERRUPT and not self.data and self.address < VECTORS

    @property
    def type_name(self) -> str:
        """The kind of transaction in a PCIe analyzer's words; the role if it crosses no bus."""
        if self.is_vector:
            return "MSI-X"
        return self.role.value if self.tlp is Tlp.NONE else self.tlp.value

    @property
    def purpose(self) -> str:
        """Role and object in words, unless `text` says more."""
        if self.text:
            return self.text
        text = self.role.value
        if self.stores > 1:
            text += f", {self.stores} stores"
        if self.role in (Role.DOORBELL, Role.WQE, Role.PAYLOAD_READ, Role.PAYLOAD_WRITE):
            text += f" of {self.noun} {self.obj:#x}"
        elif self.is_vector:
            text += f", vector {self.address}"
        elif self.role in (Role.CQE, Role.CQ_ARM):
            text += f" of CQ {self.obj:#x}"
        elif self.role in (Role.EQE, Role.EQ_ARM):
            text += f" of EQ {self.obj}"
        return text

    @property
    def completions(self) -> int:
        """Number of completions that answer the transaction, 0 unless it is a read."""
        return pieces(self.address, self.length) if self.tlp is Tlp.MEMORY_READ else 0

    @property
    def requests(self) -> int:
        """Number of writes or read requests that the transaction takes on the bus."""
        return pieces(self.address, self.length, self.limit) or 1

    @property
    def limit(self) -> int:
        """Bytes of one request of the transaction at most."""
        return MAX_READ if self.tlp is Tlp.MEMORY_READ else MAX_PAYLOAD

    def extend(self, store: Transaction) -> None:
        """Append a store into the same line to this transaction.

        The first bytes of an entry may have looked like a doorbell until now.
        """
        if self.role is Role.DOORBELL:
            self.role = Role.BLUEFLAME
        self.data = bytes(self.data) + store.data
        self.length += store.length
        self.last = store.number
        self.stores += 1
        store.taken = True


def pieces(address: int, length: int, limit: int = MAX_PAYLOAD) -> int:
    """Return the number of pieces that `split` makes."""
    return -(-(address % limit + length) // limit) if length else 0


def split(address: int, length: int, limit: int = MAX_PAYLOAD) -> Iterator[int]:
    """Yield the lengths of pieces of a range, each cut at multiples of `limit` bytes."""
    while length > 0:
        piece = min(length, limit - address % limit)
        yield piece
        address += piece
        length -= piece


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

    `noun` says whether `qpn` is that of a queue pair or of an SQ. `index` counts slots of the send
    queue since RESET; `number` counts work requests in the order in which the device began them.
    `opcode` is a `SendOpcode` name, empty if the entry was not in the log; `length` the bytes of
    the message, `inline` those of them inside the entry. `psn` is that of its first packet; on a
    network of packets `last_psn` is the farthest that left, `whole` whether all did. `status` is
    empty, `OK` or the syndrome of the send completion; `notes` are the log's notes about it,
    `noted` their events. `given`: it was given out, nothing is added any more.
    """

    device: str
    qpn: int
    index: int
    number: int = 0
    noun: str = "QP"
    posted_by: PostedBy = PostedBy.FOUND
    opcode: str = ""
    length: int = 0
    inline: int = 0
    entry_bytes: int = 0
    peer: str = ""
    peer_qpn: int = 0
    psn: int | None = None
    last_psn: int | None = None
    whole: bool = False
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
