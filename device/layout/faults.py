"""Faults by name: their layers and effects, the parameters that a user gives, the form of a row.

Each card has a table of them, `FAULTS`: `device.layout.mlx4.faults`, `device.layout.mlx5.faults`.
A fault that both have is called the same and takes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Layer(Enum):
    """The part of the adapter that a fault is in."""

    FIRMWARE = "firmware"
    QUEUE = "queue"
    MEMORY = "memory"
    EVENT = "event"
    PORT = "port"
    WIRE = "wire"
    BUS = "bus and power"
    BRIDGE = "bridge and DMA engine"


class Effect(Enum):
    """The kinds of faults; those of `ONCE` happen at once, the others are armed and wait."""

    COMMAND_FAILS = auto()
    COMMAND_LATE = auto()
    COMMAND_NEVER = auto()
    COMMAND_WRONG = auto()
    CQE_LOST = auto()
    CQE_DOUBLED = auto()
    CQE_LATE = auto()
    CQE_FOREIGN = auto()
    CQE_STATUS = auto()
    WR_REFUSED = auto()
    DOORBELL_IGNORED = auto()
    EQE_LOST = auto()
    INTERRUPT_LOST = auto()
    FATAL = auto()
    EVENT = auto()
    PORT_EVENT = auto()
    CQ_OVERRUN = auto()
    PORT_FLAP = auto()
    PORT_DOWN = auto()
    PORT_LATE = auto()
    GID_VANISHES = auto()
    WIRE = auto()
    DMA_REFUSED = auto()
    KEY_LOCKED = auto()
    FUNCTION_RESET = auto()
    REGISTERS_LOST = auto()
    REMOVED = auto()
    DOORBELL_LOST = auto()
    SCRATCHPAD_STUCK = auto()
    WINDOW_REFUSED = auto()
    DMA_ERROR = auto()


ONCE = frozenset(
    {
        Effect.FATAL, Effect.EVENT, Effect.PORT_EVENT, Effect.CQ_OVERRUN, Effect.PORT_FLAP,
        Effect.PORT_LATE, Effect.FUNCTION_RESET,
    }
)  # fmt: skip

QP_TYPES = ("RC", "UC", "UD", "XRC", "GSI", "ETH")
"""Types of queue pairs: GSI is QP1 with its management datagrams, ETH a ring of frames."""
USERS = ("RC", "UC", "UD", "XRC")
"""The types that a fault is about unless the user says so: those that programs make."""
CONNECTED = ("RC", "UC", "XRC")
FLAG = ""
"""The form of a parameter that is said, or is not; in an order to the server it is `NAME=1`."""
PARAMETERS: Mapping[str, tuple[str, str]] = {
    "opcode": (
        "NAME",
        "a firmware command, such as SW2HW_MPT; of work requests an operation, such as "
        "SEND_WITH_INV or RECV",
    ),
    "status": ("NAME", "the status that the command ends with, such as BAD_RES_STATE"),
    "error": ("NAME", "the error of a DMA channel, such as WRITE_DATA"),
    "qpn": ("NUMBER", "a queue pair; where it may be left out: all that come and that are there"),
    "qp-type": ("TYPE", f"of queue pairs, {', '.join(QP_TYPES)}; several with commas"),
    "next-connection": (FLAG, "only the queue pair that is connected next"),
    "vendor": ("NUMBER", "the vendor syndrome of the completion, `vendor_err` of verbs"),
    "cqn": ("NUMBER", "a completion queue"),
    "srqn": ("NUMBER", "a shared receive queue"),
    "event": ("NAME", "a type of event, such as PORT_CHANGE"),
    "vector": ("NUMBER", "an MSI-X vector"),
    "subtype": ("NUMBER", "the subtype of an event of a port's management"),
    "changed": ("NUMBER", "bits of what such an event says has changed"),
    "ms": ("NUMBER", "milliseconds, up to 600000"),
    "times": ("NUMBER", "how often, up to 1000"),
    "nth": ("NUMBER", "the first that is taken, of those that match (default 1)"),
    "count": ("NUMBER", "how many are taken from there on"),
    "text": ("TEXT", "what the error buffer says"),
    "field": ("NAME", "a field of the command's answer, as docs/fields.md calls it"),
    "value": ("NUMBER", "what the field says"),
    "address": ("NUMBER", "a bus address; its page of 4 KiB is meant"),
    "key": ("NUMBER", "a key of a memory region"),
    "index": ("NUMBER", "an entry of the port's table, a scratchpad"),
    "rule": ("WORDS", "a rule of `bluebridge link`"),
}
"""Forms and meanings of the parameters of faults."""

COUNTED = ("nth", "count")
OF_PAIRS = ("qpn", "qp-type", "next-connection", "opcode", *COUNTED)
"""What says which work requests a fault is about; it may wait for a queue pair to come."""
NO_LIMIT = 0
"""The `count` of a fault that takes everything that matches."""


@dataclass(frozen=True, slots=True)
class NamedFault:
    """One fault: `needs` must be given, `takes` may be, `fixed` are values that the name says.

    `count` is how many it takes unless the user says so. `seen` is what the stock driver or a
    program makes of it.
    """

    name: str
    layer: Layer
    effect: Effect
    meaning: str
    seen: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    count: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters that a user may give."""
        return self.needs + self.takes
