"""The planted defects as a page of the site."""

from __future__ import annotations

from itertools import groupby

from tests.mutants import operations
from tests.mutants.table import Defect, rows

_HEAD = """\
# Planted defects

A test that cannot fail protects nothing. `make mutants` plants {count} defects, one after another,
each in the memory of a process, and runs the tests named for it there: one of them must fail. It
ends with status 1 if a defect is unnoticed, if the tree has changed so that one cannot be planted
any more, or if a test fails without one. Its last line says how many the tests of `make test`
noticed, and how many those of `make test-all`. `python -m tests.mutants NAME...` plants chosen
ones, `--by test` wants them noticed by `make test`; two run side by side, `-n` changes that.
`make conformance` plants all.

A row is two lines in `tests/mutants/tables/`: a file, a function in it and an operation on that,
then tests, and the rule that the defect breaks. `python -m tests.mutants --page` prints this page
from there. A defect that changes nothing that anybody could see is no row.

{operations}
"""


def text() -> str:
    """Return the page."""
    table = rows()
    explained = (operations.__doc__ or "").partition("\n\n")[2].rstrip()
    parts = [_HEAD.format(count=len(table), operations=explained)]
    for area, defects in groupby(table, key=lambda defect: defect.area):
        head = "| name | function | defect | rule | held by |\n| --- | --- | --- | --- | --- |\n"
        parts += [f"\n## {area}\n\n{head}", *map(_row, defects)]
    return "".join(parts)


def _row(defect: Defect) -> str:
    tests = ", ".join(f"`{test.removeprefix('tests/')}`" for test in defect.tests)
    where = f"`{defect.file}`" + (f": `{defect.place}`" if defect.place else "")
    operation = defect.operation.replace("|", "\\|")
    return f"| {defect.name} | {where} | `{operation}` | {defect.rule} | {tests} |\n"
