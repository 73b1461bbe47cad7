"""Names in docstrings and comments: those that point into the tree lead somewhere."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.models import house

QUOTED = re.compile(r"`([^`]+)`")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
PLACE = re.compile(r"([\w/]+\.py)(?:: ([\w., ]+))?")
FILES = {
    "c", "cmd", "cpio", "cpp", "gz", "h", "ipxe", "json", "ko", "lkrn", "log", "symvers", "tar",
    "zst",
}  # fmt: skip
"""Endings of names of files that are made or read, not ours."""
EXAMPLES = {
    "EQE.PORT_MNG_CHG", "TrackEvent.Type", "a.dma", "a.ntb", "a.ntb4", "atheris.Mutate", "bth.pkey",
    "debug.event", "device.address", "engine.deadline", "pair.a", "pair.b", "run_tests.py",
    "wire.hold",
}  # fmt: skip
"""Names of tables, of other projects, of devices in the log, and of variables in examples."""


class Class(NamedTuple):
    """The names that a class defines, and its bases."""

    members: set[str]
    bases: list[str]


class Names:
    """The names that the modules of the tree define."""

    def __init__(self) -> None:
        self.paths = house.modules()
        self.trees = {name: house.tree(path) for name, path in self.paths.items()}
        self.defined = {name: _defined(tree.body) for name, tree in self.trees.items()}
        self.classes: defaultdict[str, list[Class]] = defaultdict(list)
        for tree in self.trees.values():
            for node in house.statements(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name].append(Class(_members(node), _bases(node)))

    def lead_somewhere(self, text: str, module: str) -> bool:
        """Return whether what stands in back quotes in a module is no broken name of ours."""
        if text in EXAMPLES:
            return True
        if place := PLACE.fullmatch(text):
            return self._is_place(*place.groups())
        dotted = text.removeprefix("bluebridge.").removesuffix("()")
        first, *more = parts = dotted.split(".")
        if not DOTTED.fullmatch(dotted) or dotted in EXAMPLES or parts[-1] in FILES:
            return True
        if self._has(first, more) or any(
            self._is_in(parts, cut) for cut in range(len(parts), 0, -1)
        ):
            return True
        known = first in sys.stdlib_module_names or first in _used(self.trees[module])
        return known and not text.startswith("bluebridge.")

    def _is_place(self, path: str, names: str | None) -> bool:
        """Return whether some file of this end of a path has all of these functions."""
        found = [name for name, each in self.paths.items() if f"/{each}".endswith(f"/{path}")]
        wanted = {name.split(".")[-1] for name in (names or "").split(", ") if name}
        return any(
            wanted <= set(re.findall(r"\w+", ast.unparse(self.trees[name]))) for name in found
        )

    def _is_in(self, parts: list[str], cut: int) -> bool:
        """Return whether the first parts name a module that has what the others name."""
        suffix, rest = ".".join(parts[:cut]), parts[cut:]
        return any(
            not rest or (rest[0] in self.defined[name] and self._has(rest[0], rest[1:]))
            for name in self.paths
            if f".{name}".endswith(f".{suffix}")
        )

    def _has(self, name: str, members: list[str]) -> bool:
        """Return whether a class of ours, or one of its bases, has a member, if one is named."""
        return not members or any(
            members[0] in one.members or any(self._has(base, members) for base in one.bases)
            for one in self.classes.get(name, ())
        )


def _defined(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements bind, imports included."""
    found = set[str]()
    for node in (each for statement in body for each in _shallow(statement)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _shallow(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, but nothing of the insides of functions and classes."""
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _shallow(child)


def _members(node: ast.ClassDef) -> set[str]:
    """Return what a class defines, what its methods set, and its slots."""
    found = _defined(node.body)
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.add(each.attr)
        elif isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__slots__":
            found |= {str(word.value) for word in ast.walk(each) if isinstance(word, ast.Constant)}
    return found


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


@cache
def _used(tree: ast.Module) -> set[str]:
    """Return the names in lower case that a module uses: its variables, arguments, attributes."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    return {name for name in found if name[0].islower()}


def prose(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the text of each docstring and comment."""
    for node in house.statements(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value
    yield from re.findall(r"#.*", path.read_text())


@pytest.fixture(scope="module")
def names() -> Names:
    return Names()


def test_names_in_docstrings_and_comments_exist(names: Names) -> None:
    assert [
        f"{path.relative_to(house.HOME)}: {quoted}"
        for module, path in names.paths.items()
        for text in prose(path, names.trees[module])
        for quoted in QUOTED.findall(re.sub(r"\s+", " ", text))
        if not names.lead_somewhere(quoted, module)
    ] == []


def test_a_name_that_leads_nowhere_is_seen(names: Names) -> None:
    good = ("house.Room", "Room.name", "tests.models.house.Room.name", "house.py: modules, Room")
    bad = ("house.Rooms", "Room.names", "tests.models.house.Room.names", "house.py: Rooms", "x.py")
    for text in (*good, "json.loads", "core/cmd.c: mlx4_cmd_post", "vfio.ko"):
        assert names.lead_somewhere(text, "tests.size"), text
    for text in (*bad, "bluebridge.tests.house", "Roof.name"):
        assert not names.lead_somewhere(text, "tests.size"), text
