"""`make conformance` runs each of its lists, and fails if any of them did."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = """#!/bin/sh
echo "$2" >> {runs}
case "$*" in *-m\\ long*) exit {tests};; esac
"""


@pytest.mark.parametrize(("tests", "runs", "status"), [(0, 5, 0), (1, 5, 2), (2, 3, 2)])
def test_the_long_lists_run_all_and_fail_if_one_did(
    tmp_path: Path, tests: int, runs: int, status: int
) -> None:
    """Unless one was stopped: pytest ends with status 2 then, `make` for each failure."""
    python = tmp_path / "python"
    python.write_text(PYTHON.format(runs=tmp_path / "runs", tests=tests))
    python.chmod(0o755)
    words = ["make", "-o", "setup", "conformance", f"BIN={tmp_path}"]
    assert subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == status
    names = ["tests.mutants", *["pytest"] * 3, "tests.campaigns.conformance"]
    assert (tmp_path / "runs").read_text().split() == names[:runs]


def test_a_card_has_a_list_of_programs_and_a_journal_of_its_own(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path / "runs"}\n')
    python.chmod(0o755)
    words = ["make", "-o", "setup", "conformance", "CARD=connectx5", f"BIN={tmp_path}"]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    tests, page = (tmp_path / "runs").read_text().splitlines()
    assert "tests/vm/test_programs.py --card connectx5 --results build/conformance-" in tests
    assert page.endswith("conformance --card connectx5 build/conformance-connectx5")
