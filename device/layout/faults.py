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

_HANDSHAKE = "RTRS: the path's handshake times out"
_RTRS_MESSAGES = (
    ("info-req", "opcode=SEND length=272 payload=0000 count=1", _HANDSHAKE),
    ("info-rsp", "opcode=SEND length=24- payload=0100 count=1", _HANDSHAKE),
    ("io-req", "immediate=0x00000000/0xf0000000 count=1", "RTRS: one retry"),
    ("io-rsp", "immediate=0x10000000/0xf0000000 count=1", "RTRS: one retry"),
    ("io-rsp-inv", "immediate=0x20000000/0xf0000000 count=1", "RTRS: one retry"),
    ("heartbeat", "immediate=0x80000000/0xf0000000", "RTRS: RETRY_EXC_ERR, the path reconnects"),
    ("heartbeat-ack", "immediate=0x90000000/0xf0000000", "RTRS: the peer's heartbeat times out"),
)
"""The messages of RTRS, the conditions of a link rule that find them, what follows their loss.

Names, lengths and types of immediates are those of `bluebridge.device.layout.net.rtrs`.
"""


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


def _wire(name: str, rule: str, seen: str, layer: Layer = Layer.WIRE) -> NamedFault:
    return NamedFault(
        name, layer, Effect.WIRE, f"link rule `{rule}` on port 1", seen, fixed={"rule": rule}
    )


_RTRS_FAULTS = (
    *(_wire(f"rtrs-{name}-lost", f"drop {rule}", seen) for name, rule, seen in _RTRS_MESSAGES),
    *(
        _wire(f"rtrs-{name}-late", f"delay 400 {rule}", "RTRS: retries, then it goes on")
        for name, rule, _ in _RTRS_MESSAGES
    ),
)
FLIPS = (
    _wire(
        "payload-flip",
        "flip kind=request length=1- count=1",
        "nothing below the application: bytes differ",
        Layer.MEMORY,
    ),
    _wire(
        "read-flip",
        "flip opcode=READ_RESPONSE count=1",
        "nothing below the application: bytes differ",
        Layer.MEMORY,
    ),
)
"""Faults of memory that are rules of a link, of any card."""
WIRE = (
    _wire("wire-dead", "drop", "RETRY_EXC_ERR"),
    _wire("wire-deaf", "drop direction=in", "RETRY_EXC_ERR"),
    _wire("wire-mute", "drop direction=out", "RETRY_EXC_ERR"),
    _wire("wire-lossy", "drop probability=0.01 seed=1", "retries; slower"),
    _wire("wire-slow", "delay 20", "slower"),
    _wire("wire-doubles", "duplicate", "nothing"),
    _wire("request-lost", "drop kind=request count=1", "one retry"),
    _wire("ack-lost", "drop opcode=ACK count=1", "one retry"),
    _wire("nak-lost", "drop opcode=NAK,RNR_NAK count=1", "one retry"),
    _wire("read-response-lost", "drop opcode=READ_RESPONSE count=1", "one retry"),
    _wire("datagram-lost", "drop kind=datagram count=1", "UD: a message less"),
    _wire("cm-req-lost", "drop cm=REQ count=1", "the connection takes longer"),
    _wire("cm-rep-lost", "drop cm=REP count=1", "the connection takes longer"),
    _wire("cm-rtu-lost", "drop cm=RTU count=1", "IBV_EVENT_COMM_EST at the passive side"),
    _wire("cm-dreq-lost", "drop cm=DREQ count=1", "the end takes longer"),
    _wire("cm-silent", "drop cm=REQ,REP", "RDMA_CM_EVENT_UNREACHABLE"),
    *_RTRS_FAULTS,
)
"""The faults of the wire, of any card."""
