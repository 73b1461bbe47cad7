"""Each field of the adapter's interface, each value of the engines has one word, and it is true."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path

import pytest

from bluebridge.device.frames.receiving import IP_GOOD, IS_IPV4, IS_TCP, L4_GOOD
from bluebridge.device.layout import mlx4
from bluebridge.device.layout.fields import RegisterBlock, Struct
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import FrameStatus
from bluebridge.device.mlx4 import words
from bluebridge.device.mlx4.commands.field_words import REFUSED, WORDS, Checked, page
from bluebridge.device.mlx4.commands.register import RULES
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus, PairState
from bluebridge.device.refusal import Reason
from tests.models.house import HOME, tree

ADAPTER = HOME / "device/mlx4"
NAMED = [
    (table, name, word) for table, words in WORDS.items() for names, word in words.items()
    for name in names.split()
]  # fmt: skip

HEAD = ("size", "id")
"""The beginning of all steering rules: it is read by its place."""
BY_POSITION = {
    "ATOMIC": "compare swap_add",
    "BIND": "flags1 flags2 new_rkey",
    "BOARD": "chip running_major running_minor tools_control",
    "BLUEFLAME": " ".join(f"buffer{number}" for number in range(16)),
    "CQE": "byte_count cvlan_present is_send wqe_index",
    "CQE.ERROR": "is_send wqe_index",
    "CQE.FRAME": "bad_fcs byte_count cvlan_present rss_hash svlan_present vlan_tag wqe_index",
    "CTL": "semaphore",
    "CTRL": "ds insert_vlan send_index srcrb tcp_udp_csum vlan_tag",
    "DATA": "byte_count",
    "DATAGRAM": "dqpn",
    "FLASH": "data0 data1 data2 data3",
    "HCR": "in_param_hi in_param_lo out_param_hi out_param_lo",
    "INLINE": "byte_count",
    "MASKED_ATOMIC": "compare compare_mask swap_add swap_mask",
    "MPT": "bind_enable",
    "SRQ_NEXT": "next_wqe_index",
    "UAR": "cq_arm.ci eq0.ci eq1.ci eq2.ci eq3.ci",
}
"""Fields that are used by their place in a format: no function has their names."""
COUNTERS = ("DIAGNOSTICS", "ETH_STATS")
"""Tables of counters, which the adapter writes in their order."""


def _tables() -> dict[str, Struct | RegisterBlock]:
    """All tables of device/layout/mlx4 by name."""
    found: dict[str, Struct | RegisterBlock] = {}
    for module in pkgutil.iter_modules(mlx4.__path__, mlx4.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Struct | RegisterBlock):
                found[value.name] = value
    return found


def names_of(table: Struct | RegisterBlock) -> list[str]:
    """The fields of a structure, or `register` or `register.field` of a register block."""
    if isinstance(table, Struct):
        return [item.name for item in table]
    names: list[str] = []
    for register in table.registers:
        names += [f"{register.name}.{item}" for item in register.fields] or [register.name]
    return names


def test_words_are_about_fields_and_each_has_one() -> None:
    tables = _tables()
    words = [f"{table}.{name}" for table, name, _ in NAMED]
    assert len(words) == len(set(words))
    fields = {f"{table.name}.{name}" for table in tables.values() for name in names_of(table)}
    assert not set(words) - fields


def test_a_field_without_a_word_is_used() -> None:
    named = set[str]().union(*map(_names_in, ADAPTER.rglob("*.py")))
    known = {(table, name) for table, name, _ in NAMED}
    bare = [
        f"{table.name}.{name}"
        for table in _tables().values()
        for name in names_of(table)
        if table.name not in COUNTERS
        and (table.name, name) not in known
        and not _spellings(name) & named
    ]
    by_position = [
        f"{table}.{name}" for table, names in BY_POSITION.items() for name in names.split()
    ]
    assert sorted(bare) == sorted(by_position)


def _names_in(path: Path) -> set[str]:
    """Names in a module of the adapter, none for that of the words itself."""
    own = path.name == "field_words.py"
    return set() if own else _mentions(tree(path))


def _spellings(name: str) -> set[str]:
    """A field as a structure has it, that of a mask, or a register's and the register's own."""
    register, _, field = name.rpartition(".")
    return {name, name.removesuffix("_mask"), field, field.upper(), register} - {""}


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

    visit(tree(path), "")
    return found


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


CHECKED = [(name, word) for _, name, word in NAMED if isinstance(word, Checked)]


@pytest.mark.parametrize(("name", "word"), CHECKED)
def test_the_function_that_is_named_checks_the_field(name: str, word: Checked) -> None:
    file, _, function = word.where.partition(": ")
    mentions = _mentions(_definitions(ADAPTER / file)[function])
    assert name in HEAD or {name, "BAD_PARAM"} <= mentions


def test_the_page_has_every_table_and_every_command() -> None:
    lines = page().splitlines()
    assert {f"### {table}" for table in WORDS} <= set(lines)
    commands = [line for line in lines if line.startswith("| 0x")]
    assert len(commands) == len(Opcode)
    assert all(line.rstrip(" |").count("|") == 4 for line in commands)


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (Reason, words.STATUSES),
        (PairState, words.STATES),
        (CompletionStatus, words.SYNDROMES),
        (AsyncEvent, words.EVENTS),
    ],
)
def test_each_word_has_a_number_of_its_own(kind: type[Enum], table: Mapping[Enum, int]) -> None:
    assert set(table) == set(kind)
    assert len(set(table.values())) == len(table)


def test_opcodes_and_operations_are_two_ways_of_one_table() -> None:
    for operation, opcode in enumerate(words.SEND_OPCODES):
        assert words.OPERATIONS[opcode] == operation
    unknown = [opcode for opcode in range(32) if words.OPERATIONS[opcode] == words.UNKNOWN]
    assert len(unknown) == 32 - len(words.SEND_OPCODES)


def test_findings_become_the_bits_of_a_status() -> None:
    found = IS_IPV4 | IS_TCP | IP_GOOD
    status = FrameStatus.IPV4 | FrameStatus.TCP | FrameStatus.IP_OK
    assert words.FRAME_STATUSES[found] == words.FRAME_STATUSES[found | L4_GOOD] == status
    assert words.FRAME_STATUSES[0] == 0
