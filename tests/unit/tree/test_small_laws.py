"""Laws of style that no linter has: each finds the places of a module that break it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from io import StringIO
from tokenize import COMMENT, NAME, STRING, generate_tokens
from typing import NamedTuple

import pytest

from tests.models import house

ENUMERATIONS = {"Enum", "IntEnum", "IntFlag", "StrEnum"}
ENGINES = (
    *("device/rdma/", "device/ethernet/", "device/frames/", "device/fabric/"),
    *("device/queue_pairs.py", "device/refusal.py"),
)
CARD = re.compile(r"\b(MPT|QPC|MCG|A0|B0|DMFS|INIT HCA|mlx[45])\b", re.IGNORECASE)
_SUMS = (ast.Add, ast.Sub)
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)


class Module(NamedTuple):
    """A module of the product, with its path from the top of the tree."""

    path: str
    tree: ast.Module
    text: str = ""


@cache
def product() -> list[Module]:
    """Return all modules of the product."""
    found = []
    for path in house.modules().values():
        name = str(path.relative_to(house.HOME))
        if not name.startswith("tests/"):
            found.append(Module(name, house.tree(path), path.read_text(encoding="utf-8")))
    return found


def late_constants(module: Module) -> Iterator[int]:
    """Yield lines of constants behind a class or function that they do not use.

    A constant may use it through another one. The tables of `device/layout` keep the order of what
    they describe: there an enumeration counts as a constant.
    """
    body = module.tree.body
    tables = module.path.startswith("device/layout/")
    first = next((n for n, each in enumerate(body) if _is_code(each, tables)), len(body))
    late = {name for each in body[first:] for name in _bound(each)}
    for each in body[first:]:
        if isinstance(each, (ast.Assign, ast.AnnAssign)):
            if each.value is None or late & _names(each.value):
                continue
            yield each.lineno
            late -= _bound(each)


def _is_code(node: ast.stmt, tables: bool) -> bool:
    if isinstance(node, ast.ClassDef):
        return not (tables and ENUMERATIONS & {ast.unparse(base) for base in node.bases})
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {node.name}
    nodes = ast.walk(node)
    return {each.id for each in nodes if isinstance(each, ast.Name) and _stores(each)}


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def bare_mixtures(module: Module) -> Iterator[int]:
    """Yield lines of sums inside of bit operations, or the other way, without parentheses.

    Few readers know that `a + b & c` is `(a + b) & c`.
    """
    lines = module.text.encode().split(b"\n")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.BinOp):
            for inner in (node.left, node.right):
                if _mixed(node, inner) and b"(" not in _around(lines, node, inner):
                    yield inner.lineno


def _mixed(outer: ast.BinOp, inner: ast.expr) -> bool:
    kinds = (_SUMS, _BITS)
    return isinstance(inner, ast.BinOp) and any(
        isinstance(outer.op, one) and isinstance(inner.op, other)
        for one, other in (kinds, kinds[::-1])
    )


def _around(lines: list[bytes], outer: ast.BinOp, inner: ast.expr) -> bytes:
    """Return what stands in front of the inner expression: a parenthesis, if it is in one."""
    line, column = outer.lineno, outer.col_offset
    if inner is outer.right:
        line, column = outer.left.end_lineno or 0, outer.left.end_col_offset or 0
    rows = lines[line - 1 : inner.lineno]
    rows[-1] = rows[-1][: inner.col_offset]
    return b"".join(rows)[column:]


def cards_words(module: Module) -> Iterator[int]:
    """Yield lines of engines with a word of a card: in a name, or in prose outside of backticks.

    What stands in backticks cites a source. A card's word in an engine is the sign of a card's
    shape there, which another card would have to put on.
    """
    if not module.path.startswith(ENGINES):
        return
    for token in generate_tokens(StringIO(module.text).readline):
        if token.type in (NAME, STRING, COMMENT):
            text = re.sub(r"`[^`]*`", lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), token.string)
            for found in CARD.finditer(text.replace("_", " ")):
                yield token.start[0] + text.count("\n", 0, found.start())


def one_name_of_two_types(module: Module) -> Iterator[int]:
    """Yield lines of engines' `try` with handlers of two exceptions by one name.

    Native code holds a name to the type that it had first.
    """
    for node in ast.walk(module.tree) if module.path.startswith(ENGINES) else ():
        if isinstance(node, ast.Try):
            named = [each for each in node.handlers if each.name]
            types = {(each.name, ast.unparse(each.type)) for each in named if each.type}
            if len(types) > len({each.name for each in named}):
                yield node.lineno


LAWS: dict[str, Callable[[Module], Iterator[int]]] = {
    "a constant stands before classes and functions": late_constants,
    "engines have no word of a card": cards_words,
    "parentheses stand where a sum meets bits": bare_mixtures,
    "exceptions of two types have two names": one_name_of_two_types,
}
BROKEN = [
    (late_constants, "class A: ...\nB = 1\nC = A()\nD = C"),
    (cards_words, "a = 1  # `mlx4/mcg.c`\nb = mpt_of\nc = mptable  # Linux's `QPC`"),
    (one_name_of_two_types, "a = 1\ntry: b\nexcept A as e: c\nexcept B as e: d"),
    (bare_mixtures, "a = (b + c) & (d - (e | f))\na = b - (c) & d\na = (b) & (c - d)"),
]
"""Texts that break a law in their second line and nowhere else."""


@pytest.mark.parametrize("law", LAWS)
def test_law(law: str) -> None:
    broken = [f"{each.path}:{line}" for each in product() for line in LAWS[law](each)]
    assert broken == []


@pytest.mark.parametrize(("law", "text"), BROKEN)
def test_what_breaks_a_law_is_seen(law: Callable[[Module], Iterator[int]], text: str) -> None:
    assert list(law(Module("device/rdma/x.py", ast.parse(text), text))) == [2]


def beginning_with_what(text: str) -> list[str]:
    """Return the docstrings of a text that are no sentences, but begin with `What`."""
    return re.findall(r'"{3}What\b.*', text)


def test_docstrings_of_tests_do_not_begin_with_what() -> None:
    found = {
        str(path.relative_to(house.HOME)): broken
        for path in (house.HOME / "tests").rglob("*.py")
        if (broken := beginning_with_what(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert beginning_with_what('"' * 3 + "What a thing does.")
