"""The rules that packets are held against, and what is told of a packet that breaks one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Rule(StrEnum):
    """The rules; each value is what a packet that breaks it did."""

    REFUSED = "it is no packet that an adapter takes"
    SKIP = "its sender left out packets before it"
    ORDER = "it is no part of the message that its sender had begun"
    SIZE = "its payload has a length that its place in the message does not permit"
    RESENT = "it is sent again with other contents"
    ACK_UNSENT = "it acknowledges what was not sent"
    ACK_BACK = "it acknowledges less than an acknowledgement before it"
    NAK_NOTHING = "it reports a lost packet although nothing behind that packet was sent"
    NAK_TWICE = "it reports a lost packet a second time"
    NAK_AFTER_RNR = "it reports as lost what its sender has asked to wait with"
    RNR_NO_RECEIVE = "it says that a receive is missing for a request that takes none"
    READ_UNASKED = "it answers no READ"
    READ_ORDER = "it is not the next answer to the READ"
    READ_SIZE = "its payload has a length that its place in the answer does not permit"
    ATOMIC_UNASKED = "it answers no atomic operation"
    MSN_BACK = "its MSN is less than one before it"
    CNP_UNMARKED = "it reports congestion although no packet was marked"
    CNP_EARLY = "it reports congestion too soon after another report"


TOLERATED: Final = {
    "rxe": frozenset((Rule.ACK_BACK, Rule.NAK_TWICE, Rule.NAK_AFTER_RNR, Rule.READ_ORDER)),
    "loss": frozenset((Rule.SKIP, Rule.READ_ORDER, Rule.ACK_UNSENT, Rule.READ_UNASKED)),
}
"""The rules that Linux's Soft-RoCE breaks by design (docs/soft-roce.md), and those that a capture
breaks which lacks the packets that were lost."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A packet that breaks a rule: its number in the capture, from 1, its time in ns since 1970."""

    number: int
    time: int
    rule: Rule
    qpn: int
    psn: int
    detail: str = ""
