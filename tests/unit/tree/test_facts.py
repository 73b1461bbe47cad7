"""What devices tell in the log: each call gives the fields of its fact."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bluebridge.device.layout.events import MARKS, Fact, parts
from bluebridge.images.cache import HOME


def _calls(file: Path) -> Iterator[tuple[str, Fact, set[str | None]]]:
    """Yield the place of each call that tells a fact, the fact, and the fields that it gives."""
    for node in ast.walk(ast.parse(file.read_text())):
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
