"""The structure of the tree as its imports show it, and the table "may import" of the docs.

A module is named as it is imported, without the leading `bluebridge.`; a room is a folder that has
a row in a table of docs/architecture.md. Imports under TYPE_CHECKING and inside of functions count.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bluebridge.images.cache import HOME as HOME

PACKAGES = ("device", "guest", "host_tools", "images")
PAGE = HOME / "docs" / "architecture.md"
HEADER = re.compile(r"\|\s*room\s*\|.*\|\s*may import\s*\|")
ABOVE = "the rooms above"
"""In the column "may import": every row above in the same table, and what those rows may import."""
EVERYTHING = "everything"
"""In the column "may import": no bound."""
STANDARD_LIBRARY = "standard library only"
"""In the column "may import": no module that pip installs."""

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of `ast` nodes that hold statements, or what holds statements."""

Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Room:
    """A row of the table: the room, and the rooms that it may import."""

    name: str
    may_import: frozenset[str]
    named: frozenset[str]
    """Those that its row names itself."""
    standard_library_only: bool
    unbound: bool


def modules() -> dict[str, Path]:
    """Every module of the tree, tests included, by name."""
    ground = sorted((HOME / "bluebridge").glob("*.py"))
    found = {path.stem: path for path in ground if path.name != "__init__.py"}
    for package in (*PACKAGES, "tests"):
        for path in sorted((HOME / package).rglob("*.py")):
            parts = path.relative_to(HOME).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    """A module's syntax, which every law of the tree reads.

    The collector of garbage does not look at it: millions of nodes, which stay.
    """
    parsed = ast.parse(path.read_text(encoding="utf-8"))
    gc.freeze()
    return parsed


def texts() -> list[Path]:
    """Return what may name a module in words: programs, pages, the Makefile, guests' scripts."""
    folders = ("device", "docs", "guest", "host_tools", "images", "tests")
    files = [path for folder in folders for path in (HOME / folder).rglob("*")]
    scripts = [path for path in (HOME / "images" / "guest").iterdir() if path.is_file()]
    written = [path for path in files if path.suffix in (".py", ".md")]
    return sorted({*written, *scripts, HOME / "Makefile", HOME / "README.md"})


def imports(name: str, path: Path) -> Iterator[str]:
    """Yield what a module imports, by absolute name: `bluebridge.device.layout.pci`, `struct`."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in statements(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = [*_absolute(package[: len(package) + 1 - node.level]), *base]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside `node`, without their expressions: those import nothing."""
    for name in _BLOCKS:
        for child in getattr(node, name, ()):
            yield child
            yield from statements(child)


def _absolute(package: list[str]) -> list[str]:
    return package if package[0] == "tests" else ["bluebridge", *package]


def graph(known: dict[str, Path]) -> Graph:
    """Who imports whom, among the modules of the tree."""
    return {
        name: {found for target in imports(name, path) if (found := ours(target, known))} - {name}
        for name, path in known.items()
    }


def ours(target: str, known: dict[str, Path]) -> str:
    """The module behind an imported name; empty when it is none of the tree."""
    short = target.removeprefix("bluebridge.")
    if short == target and not target.startswith("tests."):
        return ""
    return short if short in known else short.rpartition(".")[0]


def foreign(name: str, path: Path) -> set[str]:
    """Top-level names of installed packages that a module imports."""
    tops = {target.partition(".")[0] for target in imports(name, path)}
    return tops - sys.stdlib_module_names - {"bluebridge", "tests"}


def circles(edges: Graph) -> list[list[str]]:
    """Sets of modules each of which reaches all others (Tarjan's algorithm), largest first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in edges[node]:
            if target not in number:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], number[target])
        if low[node] == number[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(sorted(members))

    for node in edges:
        if node not in number:
            visit(node)
    return sorted(found, key=len, reverse=True)


def circles_of_siblings(edges: Graph) -> list[list[str]]:
    """Return the sets of folders and files of one folder that import each other.

    An import counts between the two children of the innermost folder that both modules are in;
    that of a package's own `__init__.py` counts for none.
    """
    between: Graph = {}
    for importer, targets in edges.items():
        for target in targets:
            ends = importer.split("."), target.split(".")
            depth = next((at for at, (a, b) in enumerate(zip(*ends, strict=False)) if a != b), None)
            if depth is not None:
                one, other = (".".join(end[: depth + 1]) for end in ends)
                between.setdefault(one, set()).add(other)
                between.setdefault(other, set())
    return circles(between)


def rooms(text: str) -> dict[str, Room]:
    """The rows of all tables of `text` whose columns are "room" … "may import"."""
    found: dict[str, Room] = {}
    above: list[str] | None = None
    for line in text.splitlines():
        if HEADER.fullmatch(line):
            above = []
        elif above is not None and not line.startswith("|"):
            above = None
        elif above is not None and (name := _named(line.split("|")[1])):
            column = line.rstrip("| ").rsplit("|", 1)[1]
            named = frozenset(_named(column))
            listed = set(named)
            if ABOVE in column:
                listed.update(above, *(found[room].may_import for room in above))
            for room in name:
                found[room] = Room(
                    room,
                    frozenset(listed),
                    named,
                    STANDARD_LIBRARY in column,
                    column.strip() == EVERYTHING,
                )
                above.append(room)
    return found


def _named(cell: str) -> list[str]:
    """Folders and files in backticks, as module names."""
    words = re.findall(r"`([^`]+)`", cell)
    paths = [word.removesuffix(".py").removeprefix("bluebridge/").strip("/") for word in words]
    return [path.replace("/", ".") for path in paths]


def room_of(module: str, known: dict[str, Room]) -> str:
    """The innermost room that a module belongs to; empty when it has none."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in known), "")


def may(importer: Room, target: str) -> bool:
    """Whether a room may import from the room `target`; a room inside of a listed one is not."""
    return importer.unbound or target in importer.may_import
