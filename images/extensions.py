"""Extension modules: sources as mypyc gets them, C files compiled side by side, then linked."""

from __future__ import annotations

import ast
import enum
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bluebridge.images.cache import PACKAGE
from bluebridge.images.host import as_root
from bluebridge.images.report import ImageError, run

# A cache of types would have to be as reliable as the key of a build; making them takes 4 s.
TYPES = ("--strict", "--config-file=", "--cache-dir=/dev/null", "--follow-imports=silent")
"""The options by which mypyc looks at types."""


def compiler() -> str:
    """The C compiler: `$CC`, or gcc, or cc; raises `ImageError` without it, and without mypyc."""
    if find_spec("mypyc") is None:
        raise ImageError("mypy is not installed, which has the compiler mypyc", "make setup")
    for name in (os.environ.get("CC", ""), "gcc", "cc"):
        if name and (program := shutil.which(name)):
            return program
    raise ImageError("there is no C compiler", as_root("apt-get", "install", "gcc"))


def build(
    modules: Mapping[str, Sequence[str]],
    object_of: Callable[[Path], Path],
    link: Sequence[str],
    folder: Path,
    suffix: str,
) -> None:
    """Make each module of its C files, in `folder` and called by its full name and `suffix`.

    `object_of` compiles one file, several at a time; `link` are the words in front of the object
    files. Raises `ImageError`.
    """
    sources = [Path(source) for parts in modules.values() for source in parts]
    # The largest first, so that no core ends with one alone.
    sources.sort(key=lambda source: -source.stat().st_size)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = dict(zip(sources, pool.map(object_of, sources), strict=True))

        def linked(name: str) -> None:
            parts = [objects[Path(source)] for source in modules[name]]
            run([*link, *parts, "-o", folder / (name + suffix)], what=f"link {name}")

        list(pool.map(linked, modules))


def copy_sources(folders: Sequence[str], hot: Sequence[str], tree: Path) -> None:
    """Folders of the package below `tree`, the files `hot` with their enumerations hoisted."""
    code_only = shutil.ignore_patterns("__pycache__")
    for folder in folders:
        target = tree / PACKAGE.name / folder
        shutil.copytree(PACKAGE / folder, target, ignore=code_only)
    for path in PACKAGE.glob("*.py"):
        shutil.copyfile(path, tree / PACKAGE.name / path.name)
    for name in hot:
        file = tree / name
        file.write_text(hoisted(file.read_text(encoding="utf-8")), encoding="utf-8")


def hoisted(source: str) -> str:
    """The source, its functions using constants in place of members of enumerations."""
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    members = {
        alias.asname or alias.name: found
        for node in imports
        for alias in node.names
        if (found := _members(str(node.module), alias.name))
    }
    # In a pattern a plain name takes any value: members stay what they are there.
    patterns = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.pattern)
        for each in ast.walk(node)
    }
    uses = [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in members.get(node.value.id, ())
        and id(node) not in patterns
    ]
    if not uses:
        return source
    return _rewritten(source, imports[-1], uses)


def _members(module: str, name: str) -> frozenset[str]:
    """Names of the members of an enumeration; of anything else none."""
    if not module.startswith("bluebridge."):
        return frozenset()
    found = getattr(import_module(module), name, None)
    if isinstance(found, type) and issubclass(found, enum.Enum):
        return frozenset(found.__members__)
    return frozenset()


def _rewritten(source: str, last: ast.ImportFrom, uses: list[ast.Attribute]) -> str:
    lines = [line.encode() for line in source.split("\n")]
    wanted: dict[str, str] = {}
    spans = {}
    for node in uses:
        text = ast.unparse(node)
        wanted[text] = "_" + text.replace(".", "_") + "_"
        spans[node.lineno, node.col_offset] = (node.end_col_offset, wanted[text])
    for (line, start), (end, name) in sorted(spans.items(), reverse=True):
        whole = lines[line - 1]
        lines[line - 1] = whole[:start] + name.encode() + whole[end:]
    constants = "".join(f"; {name}: _Final = {text}" for text, name in sorted(wanted.items()))
    at = (last.end_lineno or last.lineno) - 1
    lines[at] += b"; from typing import Final as _Final" + constants.encode()
    return b"\n".join(lines).decode()
