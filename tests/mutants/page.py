"""The page of planted defects, made from the table; `make docs` has it."""

from __future__ import annotations

from itertools import groupby

from tests.mutants.table import Mutant, rows

_HEAD = """\
# Planted defects

A test that cannot fail protects nothing. `make mutants` plants {count} defects, one line each, one
after another into copies of the tree, and runs the tests named for each: one of them must fail.
It ends with status 1 if a defect is unnoticed, or if the tree has changed so that one cannot be
planted any more. `python -m tests.mutants NAME...` runs chosen ones; two run side by side, `-n`
changes that. `make conformance` runs all.

A row is a few lines in `tests/mutants/tables/`: file, old and new text, tests, and the rule that
the defect breaks. `python -m tests.mutants --page` prints this page from there. A defect that
changes nothing that anybody could see is no row.
"""


def text() -> str:
    """Return the page."""
    table = rows()
    parts = [_HEAD.format(count=len(table))]
    for area, mutants in groupby(table, key=lambda mutant: mutant.area):
        parts.append(
            f"\n## {area}\n\n| name | file | rule | held by |\n| --- | --- | --- | --- |\n"
        )
        parts += [_row(mutant) for mutant in mutants]
    return "".join(parts)


def _row(mutant: Mutant) -> str:
    tests = ", ".join(f"`{test.removeprefix('tests/')}`" for test in mutant.tests)
    return f"| {mutant.name} | `{mutant.file}` | {mutant.rule} | {tests} |\n"
