"""Tests of what `make test` runs and what it leaves out; files that took long begin first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import expected

pytest_plugins = ["pytester"]
HOUSE = Path(__file__).parents[3]
MANY = "import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_a(n): pass\n"
SLOW = "import time\ndef test_z(): time.sleep(0.3)\n"
NOTED = """
from pathlib import Path
def pytest_runtest_logstart(nodeid, location):
    with Path("begun").open("a") as file:
        print(Path(nodeid.partition("::")[0]).stem, file=file)
"""


def test_the_longest_file_begins_first_from_the_second_run_on(pytester: pytest.Pytester) -> None:
    """Before anything is known, that of most tests does."""
    ours = (HOUSE / "tests" / "conftest.py").read_text()
    pytester.makepyfile(conftest=ours, noted=NOTED, test_many=MANY, test_slow=SLOW)
    orders = []
    for _ in range(2):
        words = ("-p", "no:bluebridge", "-p", "noted", "-n", "1", "--dist", "loadfile")
        pytester.syspathinsert()
        pytester.runpytest_subprocess(*words).assert_outcomes(passed=10)
        begun = pytester.path / "begun"
        orders.append(list(dict.fromkeys(begun.read_text().split())))
        begun.unlink()
    assert orders == [["test_many", "test_slow"], ["test_slow", "test_many"]]


def test_a_file_takes_so_long_for_each_test_and_an_unknown_one_as_long_as_others() -> None:
    """Parts share files: `make test` runs one test of some, `make test-all` twenty."""
    tests = Counter({"slow": 2, "quick": 5, "unknown": 4})
    assert expected({"slow": 3.0, "quick": 1.0}, tests) == {"slow": 6, "quick": 5, "unknown": 8}


MARKED = """
import pytest

def test_plain(): pass

@pytest.mark.full
def test_full(): pass

@pytest.mark.worlds
def test_seeds(): pass

@pytest.mark.brief("1", "3-x")
@pytest.mark.parametrize(
    "n", [1, 2, pytest.param(3, id="3-x"), pytest.param(4, marks=pytest.mark.long)]
)
def test_some(n): pass
"""


@pytest.mark.parametrize(
    ("option", "here", "with_guests"),
    [
        ("--brief", {"plain", "seeds", "some[1]", "some[3-x]"}, {"seeds", "some[1]", "some[3-x]"}),
        ("--rest", {"full", "seeds", "some[2]"}, {"plain", "full", "seeds", "some[2]"}),
        ("--first", {"plain", "full", "seeds", "some[1]"}, {"plain", "full", "seeds", "some[1]"}),
    ],
)
def test_which_tests_an_option_chooses(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    here: set[str],
    with_guests: set[str],
) -> None:
    monkeypatch.setenv("BLUEBRIDGE_WORLDS", "2")
    pytester.makeconftest((HOUSE / "tests" / "conftest.py").read_text())
    guests = pytester.mkdir("tests") / "vm"
    guests.mkdir()
    pytester.makeini("[pytest]\nmarkers = brief\n full\n worlds\n long")
    for folder, chosen in ((pytester.path, here), (guests, with_guests)):
        (folder / f"test_in_{folder.name}.py").write_text(MARKED)
        ran, _, _ = pytester.inline_run(f"{folder}/test_in_{folder.name}.py", option).listoutcomes()
        assert {report.nodeid.partition("::test_")[2] for report in ran} == chosen
