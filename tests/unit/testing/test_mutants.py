"""The planted defects of `make mutants` can be planted, name tests that exist, and are on the page.

Whether the tests notice them is what `make mutants` finds out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants import planting
from tests.mutants.__main__ import main
from tests.mutants.planting import ROOT, DoesNotApply, Mutant, rows

ROWS = rows()
QUIET = Mutant(
    "made up",
    "quiet",
    "device/throttle.py",
    "from __future__ import annotations",
    "from __future__ import  annotations",
    ("tests/unit/testing/test_mutants.py::test_names_differ",),
    "Nothing.",
)


@pytest.mark.parametrize("mutant", ROWS, ids=[mutant.name for mutant in ROWS])
def test_each_can_be_planted_and_names_tests(mutant: Mutant) -> None:
    assert mutant.planted() != (ROOT / mutant.file).read_text(), "it changes nothing"
    assert mutant.tests
    for test in mutant.tests:
        file, *names = test.partition("[")[0].split("::")
        text = with_contracts((ROOT / file).read_text())
        assert names and all(re.search(rf"(def|class) {name}\b", text) for name in names), test


def with_contracts(text: str) -> str:
    """The text of a test file and of the models whose tests its classes inherit."""
    models = re.findall(r"^from (tests\.models\.[\w.]+) import", text, re.MULTILINE)
    files = [ROOT / f"{model.replace('.', '/')}.py" for model in models]
    return "\n".join([text, *(file.read_text() for file in files if file.is_file())])


def test_names_differ() -> None:
    assert len({mutant.name for mutant in ROWS}) == len(ROWS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("no such text", "", "0 times, not once"), (QUIET.old, "def", "would not compile")],
)
def test_a_defect_that_cannot_be_planted(old: str, new: str, told: str) -> None:
    mutant = Mutant(QUIET.area, QUIET.name, QUIET.file, old, new, QUIET.tests, QUIET.rule)
    with pytest.raises(DoesNotApply, match=told):
        mutant.planted()


def test_a_defect_that_no_test_notices(tmp_path: Path) -> None:
    planting.copy(ROOT, tmp_path / "copy")
    verdict = planting.judge(QUIET, tmp_path / "copy")
    assert not verdict.noticed
    assert verdict.told == "nobody noticed: pytest ended with status 0"
    assert (tmp_path / "copy" / QUIET.file).read_text() == (ROOT / QUIET.file).read_text()


def test_tests_that_do_not_end_are_ended(tmp_path: Path) -> None:
    assert planting.run_tests(tmp_path, ["none.py"], limit=0.01).status is None


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-defect"]) == 2
    assert "no-such-defect" in capsys.readouterr().out
