"""The table of planted defects, read from the files in `tables/`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).parent / "tables"


class DoesNotApply(Exception):
    """The tree has changed so that a defect cannot be planted any more."""


@dataclass(frozen=True)
class Mutant:
    """A defect: `old` occurs once in `file` and becomes `new`.

    One of `tests`, ids as pytest takes them, must fail by it, since it breaks `rule`.
    """

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    rule: str

    def planted(self, root: Path = ROOT) -> str:
        """Return the text of the file with the defect. Raises `DoesNotApply`."""
        path = root / self.file
        if not path.is_file():
            raise DoesNotApply(f"there is no {self.file}")
        text = path.read_text()
        if (times := text.count(self.old)) != 1:
            raise DoesNotApply(f"{self.file} has {self.old.strip()!r} {times} times, not once")
        changed = text.replace(self.old, self.new)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise DoesNotApply(f"{self.file} would not compile: {error}") from error
        return changed


def rows() -> list[Mutant]:
    """Return all rows, in the order of the files' names and of their lines."""
    return [
        Mutant(area.stem, name, tests=tuple(row.pop("tests")), **row)
        for area in sorted(TABLES.glob("*.toml"))
        for name, row in tomllib.loads(area.read_text()).items()
    ]
