"""Plant a defect in a copy of the tree and see whether the named tests notice it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.mutants.table import ROOT, DoesNotApply, Mutant

_LEFT_OUT = (".git", ".venv", "build", "*.so", "*.egg-info", ".*_cache", ".hypothesis")
_LIMIT = 60
"""Seconds of one test; a defect by which a test only becomes slow or stuck counts as unnoticed."""
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("--tb=short", f"--timeout={_LIMIT}"),
)
_FAILED = re.compile(r"^FAILED (tests/.+?)( - .*)?$", re.MULTILINE)
_TESTS_FAILED = 1
_SECONDS = count(1)


@dataclass(frozen=True)
class Verdict:
    """`noticed`: a named test failed by the defect; `told` names it, or says what happened."""

    noticed: bool
    told: str


def copy(source: Path, target: Path) -> None:
    """Copy a tree, with the compiled files of Python that are there."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))


def run_tests(folder: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy, interpreted, until the first one fails."""
    chosen = {**os.environ, "BLUEBRIDGE_PURE": "1", "PYTHONPATH": str(folder), "COLUMNS": "240"}
    # Compiled files, once for all defects, save two thirds of the time.
    chosen.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *_PYTEST, *tests],
        cwd=folder,
        env=chosen,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


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
        return _verdict(mutant, run_tests(folder, mutant.tests))
    finally:
        path.write_bytes((ROOT / mutant.file).read_bytes())
        os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))


def _verdict(mutant: Mutant, ended: subprocess.CompletedProcess[str]) -> Verdict:
    failed = _FAILED.search(ended.stdout)
    if ended.returncode != _TESTS_FAILED or failed is None:
        why = f"nobody noticed: pytest ended with status {ended.returncode}"
        return Verdict(False, why if not ended.returncode else f"{why}\n{ended.stdout}")
    told = "".join(failed.groups(""))
    if "Failed: Timeout" in told:
        return Verdict(False, f"noticed only by the limit of {_LIMIT} s: {told}")
    if _function(failed[1]) not in map(_function, mutant.tests):
        return Verdict(False, f"another test failed: {told}")
    return Verdict(True, told)


def _function(test: str) -> str:
    return test.partition("[")[0]
