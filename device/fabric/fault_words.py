"""The words of a fault rule, as the control socket, `bluebridge link` and tests write them."""

from __future__ import annotations

from typing import NamedTuple

DRIVEN = "a driver had initialised it"
UNDRIVEN = "no driver had initialised it"
"""Answer of `fault` when no driver had initialised the adapter: nobody may notice the fault."""

ACTIONS = {
    "drop": "messages that match vanish; the sender is told nothing",
    "delay": "they arrive so many milliseconds later",
    "duplicate": "they arrive twice, the second time so many milliseconds later (default 0)",
    "flip": "they arrive with one bit of their payload wrong, and no check sum that tells",
    "corrupt": "the same, but the check sum tells, so that the receiver drops them",
    "ecn": "packets that know of ECN arrive marked as having met congestion",
    "rewrite": "packets arrive with another value in a header field, and right check sums",
    "rate": "they arrive one after the other, together at most so many Mb/s in each direction",
    "hold": "they are kept until they are released",
}
"""Meanings of the actions of rules; those in `VALUED` take a value in front of the conditions."""

TIMED = ("delay", "duplicate")
VALUED = (*TIMED, "rewrite", "rate")
"""A time in milliseconds, `HEADER.FIELD=VALUE`, or Mb/s."""

KINDS = ("request", "response", "datagram", "frames", "packet")
ANSWERS = ("ACK", "NAK", "RNR_NAK", "READ_RESPONSE", "ATOMIC_RESPONSE")


class Word(NamedTuple):
    """A condition that a rule can have: `name=value`, its form and its meaning."""

    name: str
    form: str
    meaning: str


WORDS = (
    Word("direction", "in|out|both", "into the port, out of it, or both (default)"),
    Word("kind", "KIND", f"of {', '.join(KINDS)}; several with commas"),
    Word("opcode", "NAME", f"a request's operation, or of answers {', '.join(ANSWERS)}; several"),
    Word("cm", "NAME", "only MADs of the connection manager: REQ, REP, RTU, DREQ...; several"),
    Word("qpn", "NUMBER", "source or target queue pair"),
    Word("source-qpn", "NUMBER", "the sender's; answers and frames do not name one"),
    Word("target-qpn", "NUMBER", "the receiver's; 1 for MADs; frames do not name one"),
    Word("length", "N|N-M|N-", "bytes of the message, of all its parts; of a burst of frames"),
    Word("immediate", "VALUE[/MASK]", "only messages with such an immediate value"),
    Word("payload", "HEX", "the first bytes of the message, or of its first frame"),
    Word("qp", "N", "only packets of the N-th connection that is seen, from 1 on"),
    Word("message", "N", "only packets of the N-th message of their connection, from 1 on"),
    Word("psn", "PSN|+N", "only packets with it, or N behind the message, or the first seen"),
    Word("transmission", "N", "only packets that pass the N-th time: 2 is the first repetition"),
    Word("skip", "N", "the first N that match pass (default 0)"),
    Word("count", "N", "after N messages the rule does nothing more (default: no limit)"),
    Word("probability", "P", "each that matches is taken with this probability (default 1)"),
    Word("seed", "N", "of the choice by probability (default 0): the same seed chooses the same"),
)
