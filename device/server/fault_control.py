"""Lines of the control socket about faults of links.

    drop NAME[/PORT] [WORD=VALUE ...]            messages vanish; answers with the rule's number
    delay NAME[/PORT] MS [WORD=VALUE ...]        likewise: they come later,
    duplicate NAME[/PORT] [MS] [WORD=VALUE ...]  twice,
    hold NAME[/PORT] [WORD=VALUE ...]            or not before they are released
    ecn NAME[/PORT] [WORD=VALUE ...]             packets that go on met congestion,
    rewrite NAME[/PORT] HEADER.FIELD=VALUE [WORD=VALUE ...]  or have another field
    rate NAME[/PORT] MBIT [WORD=VALUE ...]       they come one after the other
    rules [NAME[/PORT]]                          all rules, or those of a link, with their counts
    release NUMBER                               deliver what a rule keeps
    remove NUMBER|NAME[/PORT]|all                end a rule, those of a link, or all

`bluebridge.device.fabric.fault_words` has the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.fabric.fault_words import ACTIONS
from bluebridge.device.fabric.faults.parse import rule_of
from bluebridge.device.fabric.faults.rule import Rule
from bluebridge.device.fabric.faults.rules import FaultRules

_DIGITS = 9
"""Digits of a rule's number, at most."""
_SHOWN = 80
"""Characters of an invalid number that an error message repeats."""


class FaultCommands:
    """Executes control lines about faults.

    `link_of` returns the name of the link of `NAME[/PORT]`.
    """

    def __init__(self, faults: FaultRules, link_of: Callable[[str], str]) -> None:
        self._faults = faults
        self._link_of = link_of
        self.words: dict[str, Callable[[Sequence[str]], list[str]]] = {
            **{action: self._adding(action) for action in ACTIONS},
            "rules": self._rules,
            "release": self._release,
            "remove": self._remove,
        }

    def link_of(self, words: Sequence[str]) -> str:
        """Return the link or HCA that a line names, by itself or by a rule's number; else empty."""
        name = words[1] if len(words) > 1 else ""
        if name.isdecimal() and len(name) <= _DIGITS:
            return next((at for at, rule in self._faults.table() if rule.number == int(name)), "")
        return name

    def _adding(self, action: str) -> Callable[[Sequence[str]], list[str]]:
        def add(words: Sequence[str]) -> list[str]:
            if not words:
                raise ValueError(f"write: {action} NAME[/PORT] [WORD=VALUE ...]")
            link = self._link_of(words[0])
            return [str(self._faults.add(link, rule_of(action, words[1:])))]

        return add

    def _rules(self, words: Sequence[str]) -> list[str]:
        if len(words) > 1:
            raise ValueError("write: rules [NAME[/PORT]]")
        table = self._faults.table()
        if words:
            wanted = self._link_of(words[0])
            table = [(link, rule) for link, rule in table if link == wanted]
        return [_line(link, rule) for link, rule in table]

    def _release(self, words: Sequence[str]) -> list[str]:
        if len(words) != 1:
            raise ValueError("write: release NUMBER")
        self._faults.release(_number(words[0]))
        return []

    def _remove(self, words: Sequence[str]) -> list[str]:
        if len(words) != 1:
            raise ValueError("write: remove NUMBER|NAME[/PORT]|all")
        if words[0].isdecimal():
            self._faults.remove(_number(words[0]))
        else:
            self._faults.remove_all(None if words[0] == "all" else self._link_of(words[0]))
        return []


def _line(link: str, rule: Rule) -> str:
    return (
        f"{rule.number} {link} {rule.words}: matched {rule.matched}, taken {rule.taken}, "
        f"waiting {len(rule.kept)}, no room {rule.lost}"
    )


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise ValueError(f"{text[:_SHOWN]!r} is no number of a rule")
    return int(text)
