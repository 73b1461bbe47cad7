"""docs/clauses.md names places and tests that exist, and says of every rule whether it is kept."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.models import house

PAGE = house.HOME / "docs" / "clauses.md"
ORACLE = "tests/unit/rdma/test_oracle.py::test_adapters_break_no_clause"
QUOTED = re.compile(r"`([^`]+)`")
PLACE = re.compile(r"(device/[\w/]+\.py): (\w+)")
CLAUSE = re.compile(r'"(\d+\.\d[\d.]* [^"]+)"')
NODE = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


class Row(NamedTuple):
    """A rule: section, what it says, place and tests as the page has them."""

    section: str
    rule: str
    place: str
    tests: str


def rows() -> list[Row]:
    """The rules of all tables."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return [Row(*row) for row in cells if len(row) == 4 and row[0][:1] not in ("s", "-")]


ROWS = rows()


def defines(path: str, name: str) -> bool:
    """Whether a module has a function, class, or constant of that name."""
    file = house.HOME / path
    pattern = rf"^\s*(?:def|class) {name}\b|^{name}\b[^=\n]*="
    return file.is_file() and bool(re.search(pattern, file.read_text(encoding="utf-8"), re.M))


def test_the_page_has_rules_of_all_parts() -> None:
    assert len(ROWS) >= 60
    assert {row.section.split(".")[0] for row in ROWS} >= {"9", "10", "11"}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.section}: {row.rule[:40]}" for row in ROWS])
def test_each_rule_has_a_place_and_a_test_or_is_not_kept(row: Row) -> None:
    places = PLACE.findall(row.place)
    nodes = NODE.findall(row.tests)
    assert all(defines(*place) for place in places)
    assert all(defines(*node) for node in nodes)
    assert len(nodes) == len(QUOTED.findall(row.tests))
    if "not kept" not in row.place:
        assert places
        assert nodes or "oracle" in row.tests


def test_the_page_says_which_clauses_the_oracle_knows() -> None:
    assert ORACLE in PAGE.read_text(encoding="utf-8")
    assert defines(*NODE.findall(ORACLE)[0])
    rooms = "tests/oracle", "tests/world/verbs"
    texts = [file.read_text("utf-8") for room in rooms for file in (house.HOME / room).glob("*.py")]
    known = {clause for text in texts for clause in CLAUSE.findall(text)}
    assert known == {row.section for row in ROWS if "oracle" in row.tests}


def test_a_place_that_is_gone_would_be_seen() -> None:
    assert not defines("device/queue_pairs.py", "no_such_name")
    assert not defines("device/mlx4/no_such_file.py", "receive")
