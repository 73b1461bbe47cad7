"""The form of a row of the registry: all that the analyzer has to know of a device model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Values
from bluebridge.device.layout.fields import Register, RegisterBlock, Struct
from bluebridge.device.layout.ntb.uses import Uses
from bluebridge.host_tools.analyzer.transaction import Role

Data = bytes | bytearray
Words = Callable[[Event], str]


GENERAL_ERROR = "GENERAL_ERR"
"""What verbs report for a status code without a name."""


class DeviceKind(Enum):
    """Kinds of devices; the values are the words of the timeline."""

    ADAPTER = "HCA"
    BRIDGE = "bridge"
    ENGINE = "DMA engine"


class Place(NamedTuple):
    """A register that an access meets: its block, the number of the block's copy, the register."""

    block: RegisterBlock
    copy: int
    register: Register


class SendHead(NamedTuple):
    """The head of a send entry: operation, its bytes, low 16 bits of its slot, QPN.

    Slot and QPN need be there only in an entry that software stores into the adapter.
    """

    operation: str
    size: int
    slot: int
    qpn: int


class Completed(NamedTuple):
    """A completion of a send entry: QPN, low 16 bits of its slot, `OK` or an error's name."""

    qpn: int
    slot: int
    status: str


class EventKind(Enum):
    """Kinds of entries of event queues."""

    COMPLETION = "completion"
    COMMAND = "command"
    PORT = "port"
    FAULT = "fault"
    OTHER = "other"


class QueueEvent(NamedTuple):
    """An entry of an event queue; `state` is the new one of a port, if it says that.

    `number` is that of the completion queue, port or failed queue pair, or the command's token;
    None if the log has not kept it.
    """

    kind: EventKind
    number: int | None = None
    state: str = ""


class PairContext(NamedTuple):
    """The words of software about a queue pair when it gives it to hardware.

    `flushes` says whether a failed send closes the send queue only. Sizes are in slots.
    """

    flushes: bool
    send_slots: int
    send_stride: int
    receive_slots: int


class RingContext(NamedTuple):
    """The words of software about a completion or event queue when it gives it to hardware.

    `record` is the address of its doorbell record, `events` the event queue that is told; or None.
    """

    slots: int
    record: int | None = None
    events: int | None = None


@dataclass(frozen=True, slots=True)
class CommandRegister:
    """The register in BAR `bar` that firmware commands are written into, big-endian.

    Its last word, which ends at `end`, starts a command by bit `go` and asks for a completion event
    by bit `event`. The word that ends at `token_end` has the command's token in its upper half.
    """

    bar: int
    base: int
    end: int
    token_end: int
    go: int
    event: int
    name: Callable[[int], str]
    """Returns the name of a command for the last word of the register."""
    names: tuple[str, ...]
    """The names of all commands."""
    statuses: tuple[str, ...]
    """The names of the statuses with which commands end."""
    nouns: Mapping[str, str] = field(default_factory=dict)
    """By the name of a command: the kind of the object that its input modifier names, as `QP`."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameStates:
    """The states of queues of frames that are no queue pairs, and the commands that change them."""

    states: tuple[str, ...]
    """Their names; the first one is that before and after use."""
    edges: tuple[tuple[str, str], ...]
    failed: str
    """The state after a failure."""
    made: tuple[str, ...]
    gone: tuple[str, ...]
    """The names of the commands that make and that destroy one."""
    changed: Mapping[str, Callable[[Data], str | None]]
    """By the name of a command: reads the new state in its mailbox, None if too little is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Queues, commands and reset of a model of adapters, as a log has them."""

    line: int
    """Bytes of the line into which software stores whole send entries."""
    head: int
    """Bytes of a send entry that `send_head` needs."""
    page: Callable[[int], int]
    """Returns the number of the page that a whole send entry is stored into, by its offset."""
    send_head: Callable[[Data], SendHead]
    completed: Callable[[Data], Completed | None]
    """Reads a completion entry; None for one of a receive, or one that is not whole."""
    failure: Callable[[Data], int | None]
    """Returns the status code of a completion in error; None for any other completion."""
    statuses: Mapping[int, tuple[str, ...]]
    """The names of the status codes that `failure` returns, each with that of verbs first."""
    operation: Callable[[Data], str]
    """Returns the operation of a completion entry; empty for one in error, or one that is cut."""
    flushed: int
    """Status code of a work request that ended with its queue pair, without a message."""
    event: Callable[[Data], QueueEvent]
    written: Callable[[Event], tuple[Role, int]]
    """Returns the role of a register write and the number of the queue it names, 0 for none."""
    command: CommandRegister
    states: tuple[str, ...]
    """The states of queue pairs, by name; the first one is that before and after use."""
    transitions: Mapping[str, tuple[tuple[str, ...], str]]
    """By the name of the command, whose input modifier names the queue pair: the states in which
    it may be, and the one that it moves to."""
    failures: tuple[tuple[str, str], ...]
    """Transitions of queue pairs that hardware makes when work fails."""
    flushing: str
    """The state after a failed send of a queue pair that `flushes`."""
    failed: str
    """The state after any other failure."""
    described: str
    """The name of the command whose mailbox describes a queue pair: it makes it, or is the one that
    leaves the first state."""
    context: Callable[[Data], PairContext | None]
    """Reads that mailbox; None if too little is kept."""
    made: Mapping[str, tuple[Role, Callable[[Data], RingContext | None]]]
    """By the name of the command that makes a ring: the role of its entries, and what reads its
    mailbox."""
    resized: Mapping[tuple[str, int], tuple[Role, Callable[[Data], RingContext | None]]]
    """Likewise of the command that moves a queue to another ring, by its name and op modifier."""
    received: Callable[[Data], Completed | None]
    """Reads a completion entry of a receive; None for one of a send, or one that is not whole."""
    consumed: Callable[[Event], int | None]
    """Returns the consumer index in a doorbell of a completion or event queue, if all is there."""
    reset: tuple[int, int]
    """BAR and offset of the register that resets the function."""
    frame_queues: tuple[str, str] = ("QP", "QP")
    """The kinds of the queues that send and that receive frames."""
    frame_states: FrameStates | None = None
    """Those of these queues, unless they are queue pairs."""
    polled: Callable[[int, int, Data], bool] = lambda bar, address, data: False
    """Returns whether drivers read a register all the time, and find such bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceModel:
    """A model of devices: how it is named in a log, and the tables that it is decoded with."""

    kind: DeviceKind
    suffix: str
    """The part after `GUEST.` in a device's name; empty for adapters, named by their guest."""
    title: str
    """The name of the model in lists of functions."""
    blocks: Mapping[int, tuple[RegisterBlock, ...]]
    """Registers by BAR; the other BARs of a bridge or an engine are windows."""
    words: Mapping[What, Words] = field(default_factory=dict)
    """Functions that describe transfers to or from memory whose form depends on the model."""
    parts: Callable[[Event], Iterable[tuple[Struct, int]]] = lambda event: ()
    """Returns the structures that a transfer consists of, each with its place in the data."""
    register_words: Callable[[Place, int], str | None] = lambda place, value: None
    """Describes the value of a register if the tables do not suffice, else returns None."""
    config: tuple[tuple[int, int, str], ...] = ()
    """Offset, bytes and name of the model's own registers in config space."""
    adapter: Adapter | None = None
    uses: Uses | None = None
    """The uses of a bridge's registers; None for other devices."""

    @property
    def is_adapter(self) -> bool:
        """Whether the device has queue pairs, in contrast to bridges and DMA engines."""
        return self.kind is DeviceKind.ADAPTER

    def find(self, bar: int, address: int) -> Place | None:
        """Return the register at an offset of a BAR, or None."""
        for block in self.blocks.get(bar, ()):
            found = block.find(address)
            if found is not None:
                return Place(block, *found)
        return None

    def access(self, event: Event) -> str:
        """Describe an access of a BAR."""
        found = self.find(event.bar, event.address)
        if found is None:
            if self.is_adapter or event.bar in self.blocks:
                return f"BAR{event.bar}+{event.address:#x}"
            return f"window BAR{event.bar} at {event.address:#x}"
        block, index, register = found
        place = f"{block.name}[{index}]" if block.stride else block.name
        if event.length * 8 != register.width:
            return f"{place}.{register.name} part={event.data.hex()}"
        value = int.from_bytes(event.data, block.order)
        words = self.register_words(found, value)
        return f"{place}.{register.decode(value)}" if words is None else words


def number_of(command: Values) -> int:
    """Return the number of the object of a firmware command, by the values of its record."""
    found = command["in_mod"] if "in_mod" in command else command["number"]
    return int(found)


def names_of(statuses: Mapping[int, tuple[str, ...]], code: int) -> tuple[str, ...]:
    """Return the names of a status code, also of one that drivers report as a general error."""
    return statuses.get(code, (GENERAL_ERROR,))


def named(names: type[IntEnum], value: int) -> str:
    """Return the name of a number, or the number in hexadecimal if it has no name."""
    try:
        return names(value).name
    except ValueError:
        return hex(value)
