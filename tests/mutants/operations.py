"""Defects as operations on the syntax tree of one function, found by names in it.

| operation | what becomes of the function |
| --- | --- |
| `return X` | it returns X and does nothing else |
| `never X` | a condition with X in it is false: that of `if`, `while`, a ternary or a filter |
| `always X` | such a condition is true |
| `without X` | an operand of `and` or `or` with X in it counts no more |
| `omit X` | an argument, or an element of a tuple, list or set, with X in it is gone |
| `drop X` | a simple statement with X in it is gone |
| `A -> B` | the expression, operator or statement A is B; `_` in B is what stood there |

X is the name of a variable, attribute or keyword, or an expression or statement; `...` in X and
in A is anything. Of places in one another the innermost is meant. There must be one such place;
`X @2` means the second of several.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_NUMBERED = re.compile(r"(.*) @(\d+)")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class DoesNotApply(Exception):
    """The tree has changed so that a defect cannot be planted any more."""


@dataclass(frozen=True)
class Place:
    """Where a node stands: the parent, the field of it, and the index if that is a list."""

    parent: ast.AST
    field: str
    index: int | None

    @property
    def node(self) -> ast.AST:
        """Return what stands there."""
        value = getattr(self.parent, self.field)
        found: ast.AST = value if self.index is None else value[self.index]
        return found

    def put(self, *nodes: ast.AST) -> None:
        """Put another node there; none only into a list."""
        if self.index is None:
            setattr(self.parent, self.field, *nodes)
        else:
            getattr(self.parent, self.field)[self.index : self.index + 1] = nodes


def scope(tree: ast.Module, name: str) -> ast.AST:
    """Return the function or class of a dotted name, the module for an empty one.

    Of several with one name, such as a property's, the last is meant. Raises `DoesNotApply`.
    """
    found: ast.AST = tree
    for part in filter(None, name.split(".")):
        named = [node for node in _scopes(found) if getattr(node, "name", "") == part]
        if not named:
            raise DoesNotApply(f"there is no {name}")
        found = named[-1]
    return found


def _scopes(parent: ast.AST) -> Iterator[ast.AST]:
    """The functions and classes directly in a scope."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, _SCOPES):
            yield node
        else:
            yield from _scopes(node)


def apply(root: ast.AST, operation: str) -> None:
    """Change the function, class or module `root`. Raises `DoesNotApply`."""
    old, arrow, new = operation.partition(" -> ")
    word, old = ("->", old) if arrow else operation.split(" ", 1)
    if word == "return":
        vars(root)["body"] = vars(ast.parse(f"def f(): {operation}").body[0])["body"]
        return
    numbered = _NUMBERED.fullmatch(old)
    wanted, made = _pair(numbered[1] if numbered else old, new)
    kind = _exactly(wanted, made) if arrow else _KINDS.get(word)
    if kind is None:
        raise DoesNotApply(f"{operation!r} is no operation")
    places = list(dict.fromkeys(_places(root, kind.fits, wanted, None)))
    number = int(numbered[2]) if numbered else 1
    if len(places) < number or (len(places) > 1 and not numbered):
        raise DoesNotApply(f"{operation!r} has {len(places)} places")
    places[number - 1].put(*kind.made(places[number - 1]))


def _pair(old: str, new: str) -> tuple[ast.AST, ast.AST]:
    """Return what A and B are: two expressions, operators or statements."""
    for parsed in (_expression, _operator, _statement):
        with contextlib.suppress(SyntaxError):
            return parsed(old), parsed(new or old)
    raise DoesNotApply(f"{old!r}, {new!r}: no two expressions, operators or statements")


def _expression(text: str) -> ast.AST:
    return ast.parse(text, mode="eval").body


def _operator(text: str) -> ast.AST:
    tree = ast.parse(f"0 {text} 0", mode="eval").body
    found: ast.AST = tree.ops[0] if isinstance(tree, ast.Compare) else tree.op  # type: ignore[attr-defined]
    return found


def _statement(text: str) -> ast.AST:
    found = ast.parse(text).body
    return found[0] if len(found) == 1 else ast.If(ast.Constant(True), found, [])


def _places(
    root: ast.AST, fits: Callable[[Place], bool], wanted: ast.AST, around: Place | None
) -> Iterator[Place]:
    """For each mention of `wanted` below `root` the innermost place that fits around it."""
    for field, value in ast.iter_fields(root):
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(node, ast.AST):
                here = Place(root, field, index)
                inner = here if fits(here) else around
                if inner is not None and _mentions(node, wanted):
                    yield inner
                yield from _places(node, fits, wanted, inner)


def _mentions(node: ast.AST, wanted: ast.AST) -> bool:
    named = getattr(node, "attr", None) or getattr(node, "arg", None)
    return _same(node, wanted) or (isinstance(wanted, ast.Name) and named == wanted.id)


def _is_anything(wanted: object) -> bool:
    """Whether that is what stands in the brackets of `f(...)`."""
    return isinstance(wanted, list) and len(wanted) == 1 and _same(None, wanted[0])


def _same(node: object, wanted: object) -> bool:
    """Whether both are equal, but for what is `...` in `wanted`."""
    if isinstance(wanted, ast.Constant) and wanted.value is ...:
        return True
    if type(node) is not type(wanted):
        return False
    if isinstance(node, list) and isinstance(wanted, list):
        if _is_anything(wanted):
            return True
        return len(node) == len(wanted) and all(map(_same, node, wanted))
    if not isinstance(node, ast.AST):
        return node == wanted
    left_out = ("ctx", "keywords" if _is_anything(vars(wanted).get("args")) else "")
    fields = (field for field in node._fields if field not in left_out)
    return all(_same(getattr(node, field), getattr(wanted, field)) for field in fields)


@dataclass(frozen=True)
class _Kind:
    """Of what kind a place is, and what an operation makes of what stands there."""

    fits: Callable[[Place], bool]
    made: Callable[[Place], list[ast.AST]]


def _exactly(wanted: ast.AST, made: ast.AST) -> _Kind:
    return _Kind(lambda at: _same(at.node, wanted), lambda at: [_Filled(at.node).visit(made)])


class _Filled(ast.NodeTransformer):
    """Puts what stood there in place of `_`."""

    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self._node) if node.id == "_" else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        alone = isinstance(node.value, ast.Name) and isinstance(self._node, ast.stmt)
        return self.visit(node.value) if alone else self.generic_visit(node)


def _is_condition(at: Place) -> bool:
    return at.field in ("test", "ifs")


def _is_operand(at: Place) -> bool:
    return isinstance(at.parent, ast.BoolOp) and at.field == "values"


def _is_element(at: Place) -> bool:
    return at.field in ("args", "keywords", "elts") and not isinstance(at.node, ast.arguments)


def _is_statement(at: Place) -> bool:
    return isinstance(at.node, ast.stmt) and not hasattr(at.node, "body")


def _neutral(at: Place) -> list[ast.AST]:
    return [ast.Constant(isinstance(at.parent, ast.BoolOp) and isinstance(at.parent.op, ast.And))]


_KINDS = {
    "never": _Kind(_is_condition, lambda _: [ast.Constant(False)]),
    "always": _Kind(_is_condition, lambda _: [ast.Constant(True)]),
    "without": _Kind(_is_operand, _neutral),
    "omit": _Kind(_is_element, lambda _: []),
    "drop": _Kind(_is_statement, lambda _: [ast.Pass()]),
}
