"""Plant a defect in a copy of the tree and see whether the named tests notice it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, groupby
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


_LEFT_OUT = (".git", ".venv", "build", "*.so", "*.egg-info", ".*_cache", ".hypothesis")
_LIMIT = 60
"""Seconds of one test; a defect by which a test only becomes slow or stuck counts as unnoticed."""
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("--tb=short", f"--timeout={_LIMIT}", "--hypothesis-seed=0"),
)
_WHOLE_LIMIT = 180
"""Seconds of all tests of a defect, with which pytest may fail to end, too."""
_FAILED = re.compile(r"^FAILED (tests/.+?)( - .*)?$", re.MULTILINE)
_TESTS_FAILED = 1
_SECONDS = count(1)


@dataclass(frozen=True)
class Verdict:
    """`noticed`: a named test failed by the defect; `told` names it, or says what happened."""

    noticed: bool
    told: str


@dataclass(frozen=True)
class Ended:
    """A run of pytest: its exit status, None if it had to be ended, and what it printed."""

    status: int | None
    output: str


def copy(source: Path, target: Path) -> None:
    """Copy a tree, with the compiled files of Python that are there."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))


def run_tests(folder: Path, tests: Iterable[str], limit: float | None = None) -> Ended:
    """Run tests of a copy, interpreted, until the first one fails; end them after `limit` s."""
    chosen = {**os.environ, "BLUEBRIDGE_PURE": "1", "PYTHONPATH": str(folder), "COLUMNS": "240"}
    # Compiled files, once for all defects, save two thirds of the time.
    chosen.pop("PYTHONDONTWRITEBYTECODE", None)
    # Not a pipe: a process that a test left behind could keep that open.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            status = subprocess.run(
                [sys.executable, *_PYTEST, *tests],
                cwd=folder,
                env=chosen,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
        output.seek(0)
        return Ended(status, output.read())


def judge(mutant: Mutant, folder: Path) -> Verdict:
    """Plant the defect in the copy, run its tests, and take it out again."""
    try:
        changed = mutant.planted()
    except DoesNotApply as error:
        return Verdict(False, f"does not apply: {error}")
    path = folder / mutant.file
    original = path.stat()
    path.write_text(changed)
    # Python tells compiled files by second and size: no two defects have the same second.
    os.utime(path, (original.st_atime, original.st_mtime + next(_SECONDS)))
    try:
        return _verdict(mutant, run_tests(folder, mutant.tests, _WHOLE_LIMIT))
    finally:
        path.write_bytes((ROOT / mutant.file).read_bytes())
        os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))


def _verdict(mutant: Mutant, ended: Ended) -> Verdict:
    failed = _FAILED.search(ended.output)
    if ended.status is None:
        return Verdict(False, f"pytest did not end within {_WHOLE_LIMIT} s\n{ended.output}")
    if ended.status != _TESTS_FAILED or failed is None:
        why = f"nobody noticed: pytest ended with status {ended.status}"
        return Verdict(False, why if not ended.status else f"{why}\n{ended.output}")
    told = "".join(failed.groups(""))
    if "Failed: Timeout" in told:
        return Verdict(False, f"noticed only by the limit of {_LIMIT} s: {told}")
    if _function(failed[1]) not in map(_function, mutant.tests):
        return Verdict(False, f"another test failed: {told}")
    return Verdict(True, told)


def _function(test: str) -> str:
    return test.partition("[")[0]


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
