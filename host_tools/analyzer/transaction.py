"""A bus transaction, as a PCIe analyzer between the adapter and its host would show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

MAX_PAYLOAD = 256
"""Bytes of one write or completion at most; longer ones are split at multiples of it.

The value is from the study's figure 4.5.
"""
MAX_READ = 512
"""Bytes of one read request at most; longer ones are split at multiples of it.

The value is from the study's figure 4.5.
"""
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
    `Transfer.transactions` of its cause. `text` says more than the role. `taken`: it is in a
    work request, or joined to a store that may be. `given`: it was given out in an activity.
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
            text += f" of QP {self.obj:#x}"
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
        """Append a store into the same line to this transaction."""
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
