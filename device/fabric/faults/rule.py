"""A fault rule: the messages of a link that it takes, its action, and how often it acted."""

from __future__ import annotations

from random import Random
from typing import Final

from bluebridge.device.fabric.faults.kept import Kept
from bluebridge.device.fabric.faults.match import NO_LIMIT, Match
from bluebridge.device.fabric.messages import Message

IN: Final = "in"
OUT: Final = "out"
BOTH: Final = "both"


class Rule:
    """A rule of one direction or both of a link. `words` is how it was written.

    `action` is one of `fault_words.ACTIONS`, `seconds` the time of those that have one.
    `matched` counts messages that met its conditions, `taken` those it acted on, `lost` those of
    them it should have kept, had there been room. `kept` has the messages that still wait, in the
    order they came.
    """

    __slots__ = (
        "_chance", "_count", "_probability", "_skip", "action", "direction", "kept", "lost",
        "match", "matched", "number", "seconds", "taken", "words",
    )  # fmt: skip

    def __init__(
        self,
        action: str,
        words: str,
        match: Match,
        *,
        direction: str = BOTH,
        seconds: float = 0.0,
        skip: int = 0,
        count: int = NO_LIMIT,
        probability: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.number = 0
        self.action = action
        self.words = words
        self.match = match
        self.direction = direction
        self.seconds = seconds
        self.matched = 0
        self.taken = 0
        self.lost = 0
        self.kept: dict[int, Kept] = {}
        self._skip = skip
        self._count = count
        self._probability = probability
        self._chance = Random(seed)

    def takes(self, message: Message, direction: str) -> bool:
        """Whether the rule decides what becomes of a message that moves in this direction."""
        if self.direction not in (BOTH, direction) or not self.match.holds(message):
            return False
        self.matched += 1
        if self.matched <= self._skip or self.taken >= self._count:
            return False
        if self._probability < 1.0 and self._chance.random() >= self._probability:
            return False
        self.taken += 1
        return True
