"""Why a sender went back: named where it is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bluebridge.host_tools.analyzer.wire_check.rules import Seen

MOST_KEPT: Final = 1 << 14
"""Retransmissions that are told one by one; further ones are counted."""
_MOST_EXPIRED: Final = 1 << 12


class Cause(StrEnum):
    """Why a sender went back."""

    NAK = "sequence NAK"
    RNR = "RNR NAK"
    IMPLIED = "answer that was missing"
    TIMEOUT = "time-out"
    UNTOLD = "a cause that is not to be told"


@dataclass(slots=True)
class GoBack:
    """A sender went back to `psn` with packet `number` at `time`.

    `detection` is the time from the first packet behind the lost one to the NAK, `reaction` from
    there to the retransmission, or from the packet's last transmission without a NAK; both in ns.
    """

    number: int
    time: int
    qpn: int
    psn: int
    cause: Cause
    reaction: int
    detection: int | None = None


class Causes:
    """Names causes and keeps the retransmissions; `timeout` is that of all senders in ns, or 0.

    `telling` are the functions whose log tells of each time-out, `expired` is how many it told.
    """

    def __init__(self, timeout: int = 0) -> None:
        self.timeout = timeout
        self.expired = 0
        self.counts: Counter[Cause] = Counter()
        self._kept: list[GoBack] = []
        self._expiries: dict[tuple[str, int], int] = {}
        self.telling: set[str] = set()

    @property
    def went_back(self) -> Sequence[GoBack]:
        """The retransmissions, the first `MOST_KEPT` of them."""
        return self._kept

    def tell(self, function: str, psn: int, time: int) -> None:
        """Take from a log that an adapter's timer for a PSN ran out."""
        self.expired += 1
        self._expiries[function, psn] = time
        if len(self._expiries) > _MOST_EXPIRED:
            del self._expiries[next(iter(self._expiries))]

    def of(self, seen: Seen, shown: Cause | None, last: int, quiet: int | None) -> Cause:
        """Return why a sender went back with a packet that it sent before at `last`.

        `shown` is what an answer in the record may have caused. That it did is not certain when the
        timer may have run out: the answer may have been lost behind the record. `quiet` is since
        when nothing could start the timer anew, None if the record has no answer to the sender, and
        may lack all: then the timer is no certain cause.
        """
        told = self._expiries.get((seen.function, seen.packet.psn))
        if told is not None and told >= last:
            del self._expiries[seen.function, seen.packet.psn]
            return Cause.TIMEOUT
        timeout = 0 if seen.function in self.telling else self.timeout
        if shown is not None:
            return Cause.UNTOLD if timeout and seen.time - last >= timeout else shown
        sure = timeout and quiet is not None and seen.time - quiet >= timeout
        return Cause.TIMEOUT if sure else Cause.UNTOLD

    def add(self, back: GoBack) -> None:
        """Count a retransmission, and keep it if it is one of the first."""
        self.counts[back.cause] += 1
        if len(self._kept) < MOST_KEPT:
            self._kept.append(back)
