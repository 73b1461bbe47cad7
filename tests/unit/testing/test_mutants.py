"""The planted defects of `make mutants` can be planted, name tests that exist, and are on the page.

Whether the tests notice them is what `make mutants` finds out.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.mutants import operations, planting, table
from tests.mutants.__main__ import main
from tests.mutants.operations import DoesNotApply
from tests.mutants.table import ROOT, rows

ROWS = rows()


def test_each_can_be_planted_and_names_tests() -> None:
    """In one test: hundreds of them would cost as much again in every process that collects."""
    for defect in ROWS:
        changed, unchanged = defect.tree(), parsed(defect.file)
        compile(changed, defect.file, "exec")
        places = [ast.dump(operations.scope(tree, defect.place)) for tree in (changed, unchanged)]
        assert places[0] != places[1], f"{defect.name} changes nothing"
        for test in defect.tests:
            file, *names = test.partition("[")[0].split("::")
            text = with_contracts(file)
            found = all(re.search(rf"(def|class) {name}\b", text) for name in names)
            assert names and found, f"{defect.name}: {test}"


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


@cache
def with_contracts(test: str) -> str:
    """The text of a test file and of the models whose tests its classes inherit."""
    text = (ROOT / test).read_text()
    models = re.findall(r"^from (tests\.models\.[\w.]+) import", text, re.MULTILINE)
    files = [ROOT / f"{model.replace('.', '/')}.py" for model in models]
    return "\n".join([text, *(file.read_text() for file in files if file.is_file())])


def test_names_differ() -> None:
    assert len({defect.name for defect in ROWS}) == len(ROWS)
    assert len({(defect.file, defect.place, defect.operation) for defect in ROWS}) == len(ROWS)


SOURCE = """
class Ring:
    def take(self, index, *rest):
        if index >= self.size and self.open:
            self.log(index, 0, of=self)
        return [each for each in rest if each.good] or (1 if rest else 0)
"""


@pytest.mark.parametrize(
    ("operation", "old", "new"),
    [
        ("never size", "index >= self.size and self.open", "False"),
        ("always good", "each.good", "True"),
        ("never rest", "1 if rest", "1 if False"),
        ("without open", "self.open", "True"),
        ("without rest @1", "[each for each in rest if each.good]", "False"),
        ("drop log", "self.log(index, 0, of=self)", "pass"),
        ("drop self.log(...)", "self.log(index, 0, of=self)", "pass"),
        ("omit 0", "index, 0", "index"),
        ("omit of", ", of=self", ""),
        (">= -> >", ">=", ">"),
        ("and -> or", "and", "or"),
        ("self.size -> _ + 1", "self.size", "self.size + 1"),
        (
            "self.log(...) -> _; return",
            "self.log(index, 0, of=self)",
            "self.log(index, 0, of=self); return",
        ),
        ("... or ... -> []", "[each for each in rest if each.good] or (1 if rest else 0)", "[]"),
    ],
)
def test_operations(operation: str, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    tree = ast.parse(SOURCE)
    operations.apply(operations.scope(tree, "Ring.take"), operation)
    assert plain(tree) == plain(ast.parse(SOURCE.replace(old, new)))


def plain(tree: ast.AST) -> str:
    """The text of a tree; what stands in `if True:` belongs to what is around that."""
    return re.sub(r"(?m)^ *if True:\n|^ +", "", ast.unparse(ast.fix_missing_locations(tree)))


def test_a_function_that_only_returns() -> None:
    tree = ast.parse(SOURCE)
    operations.apply(operations.scope(tree, "Ring.take"), "return index")
    assert ast.unparse(tree).splitlines()[2:] == [
        "    def take(self, index, *rest):",
        "        return index",
    ]


@pytest.mark.parametrize(
    ("place", "operation", "told"),
    [
        ("Ring.give", "drop log", "there is no Ring.give"),
        ("Ring.take", "drop flush", "'drop flush' has 0 places"),
        ("Ring.take", "index -> 0", "'index -> 0' has 2 places"),
        ("Ring.take", "index @3 -> 0", "has 2 places"),
        ("Ring.take", "forget log", "'forget log' is no operation"),
        ("Ring.take", "index -> import", "no two expressions"),
    ],
)
def test_a_defect_that_cannot_be_planted(place: str, operation: str, told: str) -> None:
    tree = ast.parse(SOURCE)
    with pytest.raises(DoesNotApply, match=told):
        operations.apply(operations.scope(tree, place), operation)


def test_a_line_that_begins_no_row() -> None:
    with pytest.raises(ValueError, match="hca: no row: hca-fence"):
        list(table.parse("hca", "hca-fence: a/b.py:f: never x\n\n"))


CAMPAIGN = """
import sys
from tests.mutants import __main__ as command, judge
from tests.mutants.table import Defect, rows

def made_up(operation, *place, test="tests/unit/testing/test_mutants.py::test_names_differ"):
    return Defect("x", operation, *place, operation, (test,), "None.")

(noticed,) = [each for each in rows() if each.name == "lab-highest-number"]
throttle = "device/throttle.py", "Throttle.admits"
command.rows = lambda: [
    noticed,
    made_up("99 -> 1", noticed.file, "", test=noticed.tests[0]),
    made_up("ALL_REPORTED -> 100", *throttle),
    made_up("drop nothing", *throttle),
]
print(command.main(["-n", "1"]))
judge._WHOLE_LIMIT = 0.0
print(command.main(["lab-highest-number"]))
"""


def test_a_campaign_says_what_is_unnoticed() -> None:
    """In a process of its own, since it imports all anew."""
    said = subprocess.run(
        [sys.executable, "-c", CAMPAIGN], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for line in (
        r"noticed   lab-highest-number: tests/unit/\S+ - .+",
        r"noticed   99 -> 1: tests/unit/\S+ - .+",
        r"UNNOTICED ALL_REPORTED -> 100: nobody noticed",
        r"UNNOTICED drop nothing: does not apply: device/throttle.py: 'drop nothing' has 0 places",
        r"4 planted defects: 2 noticed by `make test`, 2 by `make test-all`; \d+ s\n1",
        r"UNNOTICED lab-highest-number: pytest did not end in time",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), (line, said)


def test_a_process_that_a_test_starts_has_the_defect() -> None:
    name = "lab-message-of-a-guest-raw"
    words = ["-c", r"from bluebridge.host_tools.errors import LabError; print(LabError('\a'))"]
    environment = {**os.environ, planting.NAME: name, "PYTHONPATH": f"{planting.CHILDREN}:{ROOT}"}
    said = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, check=True
    )
    assert said.stdout == b"\a\n"


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-defect"]) == 2
    assert "no-such-defect" in capsys.readouterr().out
