"""How far the record of a connection can be trusted, which may begin in its middle.

What was sent before the record began is answered, acknowledged and sent again in it. So a packet
that contradicts what the record shows breaks a rule only where the record holds the connection from
its beginning, or has for a while been all that the packets are about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.host_tools.analyzer.wire_check.rules import Violation

SETTLED: Final = 10**9
"""Nanoseconds of a record without a contradiction, behind which it holds all that is under way."""
_MOST_HELD: Final = 64


class Standing:
    """Judges what contradicts the record of one connection, which begins at `time`.

    Contradictions are held until the first acknowledgement has shown, by the number of messages
    that it counts, whether the record is `whole`.
    """

    def __init__(self, time: int) -> None:
        self.whole: bool | None = None
        self._since = time
        self._held: list[Violation] = []

    def sure(self, now: int) -> bool:
        """Return True if what contradicts the record at `now` breaks a rule."""
        return self.whole or now - self._since > SETTLED

    def judge(self, found: Violation) -> Iterator[Violation]:
        """Yield a violation unless what was before the record may explain it."""
        if self.sure(found.time):
            yield found
            return
        self._since = found.time
        if self.whole is None and len(self._held) < _MOST_HELD:
            self._held.append(found)

    def decide(self, *, whole: bool) -> Iterator[Violation]:
        """Take that the record is whole, or is not; yields what was held if it is."""
        self.whole, held, self._held = whole, self._held, []
        if whole:
            yield from held
