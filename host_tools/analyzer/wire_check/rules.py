"""The rules that packets are held against, and packets as a checker sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bluebridge.device.layout.net.roce import ANSWERS, PSN_MASK, BthOpcode
from bluebridge.device.packets.transport import TransportPacket

_LOST: Final = "the capture lacks packets that were lost"

_HALF: Final = 1 << 23
FIRSTS: Final = frozenset((BthOpcode.RC_SEND_FIRST, BthOpcode.RC_WRITE_FIRST))
MIDDLES: Final = frozenset((BthOpcode.RC_SEND_MIDDLE, BthOpcode.RC_WRITE_MIDDLE))
WRITES: Final = frozenset(range(BthOpcode.RC_WRITE_FIRST, BthOpcode.RC_WRITE_ONLY_IMM + 1))
LASTS: Final = frozenset((
    BthOpcode.RC_SEND_LAST, BthOpcode.RC_SEND_LAST_IMM, BthOpcode.RC_SEND_LAST_INV,
    BthOpcode.RC_WRITE_LAST, BthOpcode.RC_WRITE_LAST_IMM,
))  # fmt: skip
ATOMICS: Final = frozenset((BthOpcode.RC_COMPARE_SWAP, BthOpcode.RC_FETCH_ADD))
TAKES_RECEIVE: Final = frozenset((
    *range(BthOpcode.RC_SEND_FIRST, BthOpcode.RC_SEND_ONLY_IMM + 1), BthOpcode.RC_SEND_LAST_INV,
    BthOpcode.RC_SEND_ONLY_INV, BthOpcode.RC_WRITE_LAST_IMM, BthOpcode.RC_WRITE_ONLY_IMM,
))  # fmt: skip
RESPONSES: Final = frozenset(
    range(BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_READ_RESPONSE_ONLY + 1)
)


class Rule(StrEnum):
    """The rules; each value is what a packet that breaks it did."""

    REFUSED = "it is no packet that an adapter takes"
    SKIP = "its sender left out packets before it"
    ORDER = "it is no part of the message that its sender had begun"
    SIZE = "its payload has a length that its place in the message does not permit"
    RESENT = "it is sent again with another header or length"
    REWRITTEN = "it is sent again with other bytes"
    ACK_UNSENT = "it acknowledges what was not sent"
    ACK_BACK = "it acknowledges less than an acknowledgement before it"
    NAK_NOTHING = "it reports a lost packet although nothing behind that packet was sent"
    NAK_TWICE = "it reports a lost packet a second time"
    NAK_AFTER_RNR = "it reports as lost what its sender has asked to wait with"
    RNR_NO_RECEIVE = "it says that a receive is missing for a request that takes none"
    READ_UNASKED = "it answers no READ"
    READ_ORDER = "it is not the next answer to the READ"
    READ_RESUMED = "it answers a READ that goes on, and does not begin with FIRST or ONLY"
    READ_SIZE = "its payload has a length that its place in the answer does not permit"
    ATOMIC_UNASKED = "it answers no atomic operation"
    MSN_BACK = "its MSN is less than one before it"
    CNP_UNMARKED = "it reports congestion although no packet was marked"
    CNP_EARLY = "it reports congestion too soon after another report"


TOLERATED: Final = {
    "rxe": {
        Rule.ACK_BACK: "duplicate_request",
        Rule.NAK_TWICE: "check_psn",
        Rule.NAK_AFTER_RNR: "check_psn",
        Rule.READ_RESUMED: "duplicate_request, read_reply",
    },
    "loss": dict.fromkeys((Rule.SKIP, Rule.READ_ORDER, Rule.ACK_UNSENT, Rule.READ_UNASKED), _LOST),
    "buffers": {Rule.REWRITTEN: "a program wrote into the buffer of a request under way"},
    "odp": {Rule.RNR_NO_RECEIVE: "pages that the request needs were absent"},
}
"""The rules that each word of `--tolerate` lets a packet break, and why it does.

Those of Linux's Soft-RoCE (docs/soft-roce.md) name its function, and hold for its own packets.
"""


def tolerance(rule: Rule, names: Sequence[str], *, migrated: bool) -> str | None:
    """Return the name under which a broken rule is tolerated, None if it is not.

    `migrated` is MigReq of the packet that breaks it: adapters set it, Soft-RoCE never does.
    """
    for name in names:
        if rule in TOLERATED[name] and not (name == "rxe" and migrated):
            return name
    return None


@dataclass(frozen=True, slots=True)
class Violation:
    """A packet that breaks a rule: its number in the capture, from 1, its time in ns since 1970."""

    number: int
    time: int
    rule: Rule
    qpn: int
    psn: int
    detail: str = ""


@dataclass(slots=True)
class Seen:
    """Packet `number` of a capture, at `time` in ns, for queue pair `qpn` at GID `target`.

    `marked` says that a switch met congestion, `migrated` is MigReq. A log also has the
    `function` that sent it and, of a request, the queue pair `sender`; 0 if it is not known.
    """

    number: int
    time: int
    source: bytes
    target: bytes
    qpn: int
    packet: TransportPacket
    marked: bool = False
    migrated: bool = True
    function: str = ""
    sender: int = 0

    @property
    def is_answer(self) -> bool:
        """Return True if a responder sent it."""
        return self.packet.opcode in ANSWERS


def broken(seen: Seen, rule: Rule, detail: str = "") -> Violation:
    """Return what is told of a packet that breaks a rule."""
    return Violation(seen.number, seen.time, rule, seen.qpn, seen.packet.psn, detail)


def later(psn: int, than: int) -> int:
    """Return how many packets `psn` lies after `than`; negative before it (24 bits wrap)."""
    return ((psn - than + _HALF) & PSN_MASK) - _HALF
