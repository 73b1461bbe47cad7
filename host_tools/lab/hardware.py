"""Faults of links for programs: rules of the device server that end with a `with` block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bluebridge.device.fabric.fault_words import WORDS

Tell = Callable[[str], list[str]]
Value = str | int | float | bytes


@dataclass(frozen=True)
class FaultRule:
    """A rule in force; `number` is what the device server calls it."""

    number: int
    tell: Tell

    def counts(self) -> dict[str, int]:
        """`matched`, `taken`, `waiting` and `no room`, as `bluebridge link NAME rules` has them."""
        for line in self.tell("rules"):
            if line.startswith(f"{self.number} "):
                counts = line.rpartition(": ")[2].split(", ")
                return {name: int(n) for name, n in (each.rsplit(" ", 1) for each in counts)}
        raise LookupError(f"rule {self.number} is not in force any more")

    @property
    def taken(self) -> int:
        """The number of messages that the rule has acted on."""
        return self.counts()["taken"]

    def release(self) -> None:
        """Deliver what it keeps; it stays in force."""
        self.tell(f"release {self.number}")


class Hardware:
    """The links of a running device server, to which `tell` sends lines.

    A link is `a`, or `a/2` for the second port. Conditions are the words of docs/faults.md, with
    underscores: `source_qpn=0x49`. Rules end with the `with` block; what they keep is delivered.
    Raises `UsageError` with what the server says against a rule.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def drop(self, link: str, **words: Value) -> contextlib.AbstractContextManager[FaultRule]:
        """Let messages vanish."""
        return self._rule("drop", link, "", words)

    def delay(
        self, link: str, milliseconds: float, **words: Value
    ) -> contextlib.AbstractContextManager[FaultRule]:
        """Let messages come later."""
        return self._rule("delay", link, f" {milliseconds:g}", words)

    def duplicate(
        self, link: str, milliseconds: float = 0, **words: Value
    ) -> contextlib.AbstractContextManager[FaultRule]:
        """Messages come again, so much later."""
        return self._rule("duplicate", link, f" {milliseconds:g}", words)

    def hold(self, link: str, **words: Value) -> contextlib.AbstractContextManager[FaultRule]:
        """Messages wait until the rule is released."""
        return self._rule("hold", link, "", words)

    def plug(self, link: str) -> None:
        """Connect a cable."""
        self._tell(f"link {link} up")

    def unplug(self, link: str) -> None:
        """Pull a cable out: the guest sees its link go."""
        self._tell(f"link {link} down")

    def restore(self, link: str) -> None:
        """End all rules of a link."""
        self._tell(f"remove {link}")

    @contextlib.contextmanager
    def _rule(
        self, action: str, link: str, time: str, words: dict[str, Value]
    ) -> Iterator[FaultRule]:
        number = int(self._tell(f"{action} {link}{time}{_line(words)}")[0])
        try:
            yield FaultRule(number, self._tell)
        finally:
            if any(line.startswith(f"{number} ") for line in self._tell("rules")):
                self._tell(f"remove {number}")


def _line(words: dict[str, Value]) -> str:
    """Conditions as the control socket reads them; raises `TypeError` for another name."""
    text = ""
    known = {word.name for word in WORDS}
    for name, value in words.items():
        word = name.replace("_", "-")
        if word not in known:
            raise TypeError(f"a rule has no condition {name!r}, but {', '.join(sorted(known))}")
        text += f" {word}={value.hex() if isinstance(value, bytes) else value}"
    return text
