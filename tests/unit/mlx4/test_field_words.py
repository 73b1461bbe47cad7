"""Every field of the adapter's interface has a word, and the words are true."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import pytest

from bluebridge.device.layout import mlx4
from bluebridge.device.layout.fields import RegisterBlock, Struct, u32
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.mlx4.commands.register import RULES
from bluebridge.device.mlx4.field_words.opcodes import REFUSED
from bluebridge.device.mlx4.field_words.page import ALL, page
from bluebridge.device.mlx4.field_words.word import TableWords, Verdict, Word
from tests.models.house import HOME

ADAPTER = HOME / "device/mlx4"
NAMED = [(words, name) for words in ALL for name in words.by_field()]


def _tables() -> dict[str, Struct | RegisterBlock]:
    """All tables of device/layout/mlx4 by name."""
    found: dict[str, Struct | RegisterBlock] = {}
    for module in pkgutil.iter_modules(mlx4.__path__, mlx4.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Struct | RegisterBlock):
                found[value.name] = value
    return found


def test_every_table_has_words() -> None:
    assert {words.table.name for words in ALL} == set(_tables())
    assert len(ALL) == len({words.table.name for words in ALL})


def test_no_field_is_without_a_word() -> None:
    bare = [f"{words.table.name}.{name}" for words, name in NAMED if words.word(name) is None]
    assert bare == []


def test_no_word_is_about_a_field_that_is_not_there() -> None:
    assert {words.table.name: words.unknown() for words in ALL if words.unknown()} == {}


def test_a_field_without_a_word_would_be_found() -> None:
    new = TableWords(Struct("NEW", 4, [u32("field", 0)]), ())
    assert list(new.by_field().values()) == [None]


def test_every_command_has_a_rule_or_a_word() -> None:
    assert {*RULES} & {*REFUSED} == set()
    assert {*RULES} | {*REFUSED} == {*Opcode}


@cache
def _definitions(path: Path) -> dict[str, ast.AST]:
    """Functions, methods, classes and constants of a module by qualified name."""
    found: dict[str, ast.AST] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found[prefix + child.name] = child
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign) and not prefix:
                for target in child.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = child

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def _definition(word: Word) -> ast.AST | None:
    file, _, name = word.where.partition(": ")
    return _definitions(ADAPTER / file).get(name)


def _mentions(node: ast.AST) -> set[str]:
    """Strings, keywords and names in a definition."""
    names: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            names.add(child.value)
        elif isinstance(child, ast.keyword) and child.arg is not None:
            names.add(child.arg)
        elif isinstance(child, ast.Name):
            names.add(child.id)
        elif isinstance(child, ast.Attribute):
            names.add(child.attr)
    return names


@pytest.mark.parametrize("words", ALL, ids=lambda words: words.table.name)
def test_the_function_that_is_named_has_the_field(words: TableWords) -> None:
    for name, word in words.by_field().items():
        assert word is not None
        if word.verdict is Verdict.IGNORED:
            assert word.note and not word.where, name
            continue
        definition = _definition(word)
        assert definition is not None, f"{name}: there is no {word.where}"
        mentions = _mentions(definition)
        assert word.by_position or name in mentions, f"{name} is not in {word.where}"
        assert word.status is None or word.status.name in mentions, f"{name}: {word.status}"


def test_the_page_has_every_table_and_every_command() -> None:
    lines = page().splitlines()
    assert {f"### {words.table.name}" for words in ALL} <= set(lines)
    commands = [line for line in lines if line.startswith("| 0x")]
    assert len(commands) == len(Opcode)
    assert all(line.rstrip(" |").count("|") == 4 for line in commands)
