"""Tests of what devices tell in the log: each call gives the fields of its fact."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.layout.events import MARKS, Fact, parts
from tests.models.house import HOME, tree


def _calls(file: Path) -> Iterator[tuple[str, Fact, set[str | None]]]:
    """Yield the place of each call that tells a fact, the fact, and the fields that it gives."""
    for node in ast.walk(tree(file)):
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(func, ast.Attribute) and func.attr == "tell":
            for each in node.args:
                for name in _facts(each):
                    given = {keyword.arg for keyword in node.keywords}
                    yield f"{file.relative_to(HOME)}:{node.lineno}", Fact[name], given


def _facts(node: ast.expr) -> list[str]:
    """Return the names of facts in `Fact.LINK`, or in `Fact.LINK if up else Fact.ABORT`."""
    if isinstance(node, ast.IfExp):
        return [*_facts(node.body), *_facts(node.orelse)]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return [node.attr] * (node.value.id == "Fact")
    return []


def test_each_fact_is_told_with_its_fields() -> None:
    """All of them but those that the text may leave out: a misspelt one would be lost."""
    calls = [call for file in HOME.glob("device/**/*.py") for call in _calls(file)]
    for place, fact, given in calls:
        optional = {name for _, names in parts(fact.template) for name in names}
        if None not in given:  # it hands a table on
            assert set(fact.fields) - optional <= given, (place, fact.name)
        assert given - {None} <= set(fact.fields), (place, fact.name)
    assert {fact for _, fact, _ in calls} | {*MARKS, Fact.SEQUENCE_ERROR, Fact.NO_ANSWER} == {*Fact}


READERS = ("analyzer", "web", "watch", "pytest_plugin", "tour")
PARSING = {
    "startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix",
    "find", "index", "match", "fullmatch", "search", "findall", "finditer",
}  # fmt: skip
EXPRESSIONS = {
    "analyzer/comparison.py": "numbers of lines, in the order in which they appear",
    "analyzer/conditions.py": "expressions that users write",
    "analyzer/output.py": "colours of a terminal",
    "analyzer/packets.py": "names of opcodes",
    "web/app.py": "Markdown",
    "web/side_by_side.py": "numbers of lines of transfers",
}
"""The files of the analyzer and the page that have regular expressions, and over what."""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("text", "title")


def _parses(node: ast.AST) -> bool:
    """Return whether a node takes the text of an event, or a title, apart."""
    if isinstance(node, ast.Compare):
        return isinstance(node.ops[0], ast.In) and _is_text(node.comparators[0])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in PARSING and any(map(_is_text, (node.func.value, *node.args)))


@pytest.mark.parametrize("room", READERS)
def test_nobody_takes_a_text_apart(room: str) -> None:
    for file in (HOME / "host_tools" / room).rglob("*.py"):
        for node in ast.walk(tree(file)):
            assert not _parses(node), f"{file.relative_to(HOME)}:{getattr(node, 'lineno', 0)}"


def test_regular_expressions_are_over_nothing_that_a_device_tells() -> None:
    folder = HOME / "host_tools"
    found = {
        str(file.relative_to(folder))
        for room in ("analyzer", "web", "watch")
        for file in (folder / room).rglob("*.py")
        if "\nimport re\n" in file.read_text()
    }
    assert found == set(EXPRESSIONS)


@pytest.mark.parametrize(
    "line", ["a.text.startswith(b)", "A.match(a.text)", "b in a.title", "a.title.partition(b)"]
)
def test_text_that_is_taken_apart_would_be_seen(line: str) -> None:
    assert any(map(_parses, ast.walk(ast.parse(line))))
