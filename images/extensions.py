"""Extension modules of the C files that mypyc writes: compiled side by side, then linked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from bluebridge.images.host import as_root
from bluebridge.images.report import ImageError
from bluebridge.images.run import run

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
