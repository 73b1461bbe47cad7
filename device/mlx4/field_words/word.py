"""A word on a field: the device checks it, tells it, or ignores it for a reason.

A field without a word is used: the device behaves as it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch

from bluebridge.device.layout.fields import RegisterBlock, Struct
from bluebridge.device.layout.mlx4.commands import Status


class Verdict(StrEnum):
    """The kinds of treatment that the device can give a field."""

    CHECKED = "checked"
    TOLD = "told"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Word:
    """The verdict on some fields.

    `where` is the function, as `rings/event_queues.py: EventQueues.create` below device/mlx4, that
    reads or writes them. `status` is what a command ends with when a checked one is refused. `note`
    says why, or what the device makes of it. `by_position`: the function has the field's place and
    not its name.
    """

    verdict: Verdict
    where: str = ""
    note: str = ""
    status: Status | None = None
    by_position: bool = False


def told(where: str, note: str = "", *, by_position: bool = False) -> Word:
    """Return the word on fields that the device writes for software."""
    return Word(Verdict.TOLD, where, note, by_position=by_position)


def checked(where: str, status: Status, note: str, *, by_position: bool = False) -> Word:
    """Return the word on fields that are refused with `status` unless they are as `note` says."""
    return Word(Verdict.CHECKED, where, note, status, by_position)


def ignored(why: str) -> Word:
    """Return the word on fields on which nothing depends, for the reason `why`."""
    return Word(Verdict.IGNORED, note=why)


Rows = Sequence[tuple[Word, str]]
"""Words with the names they are about, separated by spaces; `*` stands for any characters."""


@dataclass(frozen=True)
class TableWords:
    """The words on the fields of one table."""

    table: Struct | RegisterBlock
    rows: Rows

    def word(self, name: str) -> Word | None:
        """Return the word on a field, None without one; raises `ValueError` for a second one."""
        found = [word for word, names in self.rows if _named(name, names)]
        if len(found) > 1:
            raise ValueError(f"{self.table.name}.{name} has {len(found)} words")
        return found[0] if found else None

    def by_field(self) -> Mapping[str, Word | None]:
        """Return the word on each field of the table, None for those that are used."""
        return {name: self.word(name) for name in names_of(self.table)}

    def unknown(self) -> list[str]:
        """Return the names in the rows that match no field."""
        own = names_of(self.table)
        patterns = [name for _, names in self.rows for name in names.split()]
        return [one for one in patterns if not any(fnmatch(name, one) for name in own)]


def names_of(table: Struct | RegisterBlock) -> list[str]:
    """Return the fields of a structure, or `register` or `register.field` of a register block."""
    if isinstance(table, Struct):
        return [item.name for item in table]
    names: list[str] = []
    for register in table.registers:
        names += [f"{register.name}.{item}" for item in register.fields] or [register.name]
    return names


def _named(name: str, names: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in names.split())
