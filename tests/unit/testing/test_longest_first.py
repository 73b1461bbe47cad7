"""Files that took long begin first when pytest runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

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
