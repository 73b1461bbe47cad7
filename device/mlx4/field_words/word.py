"""A word about a field: the device uses it, checks it, tells it, or ignores it for a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch

from bluebridge.device.layout.fields import RegisterBlock, Struct
from bluebridge.device.layout.mlx4.commands import Status


class Verdict(StrEnum):
    """What becomes of a field."""

    USED = "used"
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


def used(where: str, note: str = "", *, by_position: bool = False) -> Word:
    """The device behaves as these fields say."""
    return Word(Verdict.USED, where, note, by_position=by_position)


def told(where: str, note: str = "", *, by_position: bool = False) -> Word:
    """The device writes these fields for software."""
    return Word(Verdict.TOLD, where, note, by_position=by_position)


def checked(where: str, status: Status, note: str, *, by_position: bool = False) -> Word:
    """What these fields ask for is refused with `status`, but for the values in `note`."""
    return Word(Verdict.CHECKED, where, note, status, by_position)


def ignored(why: str) -> Word:
    """Nothing depends on these fields."""
    return Word(Verdict.IGNORED, note=why)


Rows = Sequence[tuple[Word, str]]
"""Words with the names they are about, separated by spaces; `*` stands for any characters."""


@dataclass(frozen=True)
class TableWords:
    """The words about one table."""

    table: Struct | RegisterBlock
    rows: Rows

    def word(self, name: str) -> Word | None:
        """The word about a field, None without one; raises `ValueError` for a second one."""
        found = [word for word, names in self.rows if _named(name, names)]
        if len(found) > 1:
            raise ValueError(f"{self.table.name}.{name} has {len(found)} words")
        return found[0] if found else None

    def by_field(self) -> Mapping[str, Word | None]:
        """The word about each field of the table."""
        return {name: self.word(name) for name in names_of(self.table)}

    def unknown(self) -> list[str]:
        """Names in the rows that no field has."""
        own = names_of(self.table)
        patterns = [name for _, names in self.rows for name in names.split()]
        return [one for one in patterns if not any(fnmatch(name, one) for name in own)]


def names_of(table: Struct | RegisterBlock) -> list[str]:
    """The fields of a structure; of a block of registers `register` or `register.field`."""
    if isinstance(table, Struct):
        return [item.name for item in table]
    names: list[str] = []
    for register in table.registers:
        names += [f"{register.name}.{item}" for item in register.fields] or [register.name]
    return names


def _named(name: str, names: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in names.split())
