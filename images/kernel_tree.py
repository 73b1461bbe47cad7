"""The folders in which kbuild writes, and which of them, with which source, a kernel is from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bluebridge.images.cache import Cache, key_of
from bluebridge.images.report import ImageError
from bluebridge.images.sandbox import Bind

KEPT = 2
"""How many of these folders stay, some 2 GB each: a source's with and without checks."""
MODULES = "modules"
"""The folder, beside what kbuild wrote, of modules that were built for that kernel, with lines."""
_NOTE = "tree.json"
_NAME = "kernel-tree"


@contextmanager
def work(cache: Cache, source: Path, debug: bool) -> Iterator[Path]:
    """Hold the folder of a source for a build, with what its last build left there.

    First those of other sources are removed that were not built lately, unless one is held.
    """
    folder = cache.folder(_NAME, key_of(str(source.resolve()), debug))
    with cache.lock(folder.name):
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        there = cache.root.glob(f"{_NAME}-{'[0-9a-f]' * 16}")
        for older in sorted(there, key=lambda path: path.stat().st_mtime)[:-KEPT]:
            with cache.lock_if_free(older.name) as free:
                if free:
                    cache.remove(older)
        yield folder


def note(folder: Path, source: Path, output: Path) -> None:
    """Write into the folder of a kernel where it was built."""
    (folder / _NOTE).write_text(json.dumps([str(source), str(output)]))


def binds(folder: Path) -> tuple[Bind, Bind]:
    """Return what a sandbox sees of that as `/source` and `/build`.

    Raises `ImageError` when one of them is not there any more.
    """
    source, output = _read(folder)
    return Bind(source, "source"), Bind(output, "build")


def place(folder: Path) -> Path:
    """Return the folder that has what kbuild wrote as `build`, and `MODULES`.

    Raises `ImageError` as `binds` does.
    """
    return _read(folder)[1].parent


def _read(folder: Path) -> tuple[Path, Path]:
    try:
        source, output = (Path(each) for each in json.loads((folder / _NOTE).read_text()))
    except (OSError, ValueError):
        source = output = Path("/nonexistent")
    if not (source.is_dir() and output.is_dir()):
        what = f"the tree of the kernel in {folder} is not there any more"
        raise ImageError(what, "`bluebridge kernel build SOURCE` makes it anew")
    return source, output
