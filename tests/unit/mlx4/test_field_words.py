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
from bluebridge.device.mlx4.field_words.word import TableWords, Verdict, Word, names_of
from tests.models.house import HOME

ADAPTER = HOME / "device/mlx4"
NAMED = [(words, name) for words in ALL for name in words.by_field()]

BY_POSITION = {
    "ATOMIC": "compare swap_add",
    "BIND": "flags1 flags2 new_rkey",
    "BLUEFLAME": " ".join(f"buffer{number}" for number in range(16)),
    "CTRL": "ds insert_vlan send_index srcrb tcp_udp_csum vlan_tag",
    "DATA": "byte_count",
    "DATAGRAM": "dqpn",
    "HCR": "in_param_hi in_param_lo out_param_hi out_param_lo",
    "INLINE": "byte_count",
    "MASKED_ATOMIC": "compare compare_mask swap_add swap_mask",
    "MLX": "ds",
    "MPT": "bind_enable",
    "RULE_IPV4": "destination_mask source_mask",
    "RULE_PORTS": "destination_mask source_mask",
    "SRQ_NEXT": "next_wqe_index",
    "UAR": "cq_arm.ci eq0.ci eq1.ci eq2.ci eq3.ci",
}
"""Fields that are used by their place in a format: no function has their names."""


def _tables() -> dict[str, Struct | RegisterBlock]:
    """All tables of device/layout/mlx4 by name."""
    found: dict[str, Struct | RegisterBlock] = {}
    for module in pkgutil.iter_modules(mlx4.__path__, mlx4.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Struct | RegisterBlock):
                found[value.name] = value
    return found


def test_words_are_about_tables_and_each_has_one_place() -> None:
    assert {words.table.name for words in ALL} <= set(_tables())
    assert len(ALL) == len({words.table.name for words in ALL})


def test_a_field_without_a_word_is_used() -> None:
    named = set[str]().union(*map(_names_in, ADAPTER.rglob("*.py")))
    told = {(words.table.name, name) for words, name in NAMED if words.word(name) is not None}
    bare = [
        f"{table.name}.{name}"
        for table in _tables().values()
        for name in names_of(table)
        if (table.name, name) not in told and not _spellings(name) & named
    ]
    by_position = [
        f"{table}.{name}" for table, names in BY_POSITION.items() for name in names.split()
    ]
    assert sorted(bare) == sorted(by_position)


def _names_in(path: Path) -> set[str]:
    """Names in a module of the adapter, none for the modules of words themselves."""
    own = path.parent.name == "field_words"
    return set() if own else _mentions(ast.parse(path.read_text(encoding="utf-8")))


def _spellings(name: str) -> set[str]:
    """A field as a structure has it, or a register's field and the register as constants."""
    register, _, field = name.rpartition(".")
    return {name, field, field.upper(), register} - {""}


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
        if word is None:
            continue
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
