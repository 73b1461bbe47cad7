"""What devices tell in the log: each call gives the fields of its fact."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bluebridge.device.layout.events import Fact
from bluebridge.images.cache import HOME


def _calls(file: Path) -> Iterator[tuple[str, Fact, set[str | None]]]:
    """Yield the place of each call that tells a fact, the fact, and the fields that it gives."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
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
    """All of them but texts, which are empty for most: a misspelt one would be lost."""
    calls = [call for file in HOME.glob("device/**/*.py") for call in _calls(file)]
    for place, fact, given in calls:
        needed = {name for name, form in fact.fields.items() if not form.text}
        assert needed <= given <= set(fact.fields), (place, fact.name)
    assert len(calls) >= 3
