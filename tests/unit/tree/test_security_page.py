"""SECURITY.md names tests and modules that exist, and has tests for each who may do what."""

from __future__ import annotations

import re

import pytest

from tests.models import house

PAGE = (house.HOME / "SECURITY.md").read_text(encoding="utf-8")
HELD = PAGE.partition("## What holds it")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", HELD, re.M)[1:]
NAMED = re.findall(r"`((?:tests|device)/[\w/]+\.py)(?:(?:::|: )(\w+))?`", PAGE)


def test_each_line_has_tests() -> None:
    assert len(ROWS) >= 13
    for line, tests in ROWS:
        assert tests.startswith("`tests/"), line


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_what_the_page_names_is_there(path: str, name: str) -> None:
    source = (house.HOME / path).read_text(encoding="utf-8")
    assert not name or re.search(rf"^\s*(?:def|class) {name}\b", source, re.M)
