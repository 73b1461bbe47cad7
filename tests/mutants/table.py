"""The planted defects, as the files of tests/mutants/tables have them.

A row is two lines. The first has its name, a file and a function in it, and an operation of
`operations.py`. The second has the tests that must notice the defect, and the rule that it breaks:

    hca-fence: device/rdma/connected/requester.py:Requester._must_wait: without fence
      unit/rdma/test_qp_retry.py::test_fence: A fenced request waits for all reads before it.

Tests are separated by commas; one that begins with `::` is in the file of the test before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from tests.mutants.operations import DoesNotApply, apply, scope

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).parent / "tables"
_ROW = re.compile(r"([\w-]+): ([\w/]+\.py)(?::([\w.]+))?: (.+)\n {2}(\S.*?\S): (.+)\n", re.ASCII)


@dataclass(frozen=True)
class Defect:
    """One of `tests`, ids as pytest takes them, must fail by it, since it breaks `rule`."""

    area: str
    name: str
    file: str
    place: str
    """The function or class in the file; empty for the module itself."""
    operation: str
    tests: tuple[str, ...]
    rule: str

    def tree(self) -> ast.Module:
        """Return the syntax tree of the file with the defect. Raises `DoesNotApply`."""
        path = ROOT / self.file
        if not path.is_file():
            raise DoesNotApply(f"there is no {self.file}")
        tree = ast.parse(path.read_bytes(), self.file)
        try:
            apply(scope(tree, self.place), self.operation)
        except DoesNotApply as error:
            raise DoesNotApply(f"{self.file}: {error}") from error
        return ast.fix_missing_locations(tree)

    def code(self, filename: str) -> CodeType:
        """Return the module with the defect, compiled. Raises `DoesNotApply`."""
        try:
            return compile(self.tree(), filename, "exec")
        except (SyntaxError, TypeError, ValueError) as error:
            raise DoesNotApply(f"{self.file} would not compile: {error}") from error


def rows() -> list[Defect]:
    """Return all, in the order of the files' names and of their lines. Raises `ValueError`."""
    return [
        row for path in sorted(TABLES.glob("*.txt")) for row in parse(path.stem, path.read_text())
    ]


def parse(area: str, text: str) -> Iterator[Defect]:
    """Read one file. Raises `ValueError` with the line that begins no row."""
    at = 0
    while at < len(text):
        found = _ROW.match(text, at)
        if found is None:
            raise ValueError(f"{area}: no row: {text[at:].splitlines()[0]}")
        name, file, place, operation, tests, rule = found.groups("")
        yield Defect(area, name, file, place, operation, tuple(_ids(tests)), rule)
        at = found.end()


def _ids(text: str) -> Iterator[str]:
    file = ""
    for each in text.split(", "):
        file, names = (each.partition("::")[::2]) if not each.startswith("::") else (file, each[2:])
        yield f"tests/{file}::{names}"
