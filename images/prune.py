"""Removes unused files and shared libraries from an unpacked root."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.images.elf import needed
from bluebridge.images.errors import ImageError
from bluebridge.images.unpack import LIBRARIES


def remove(root: Path, patterns: Iterable[str], kept: Sequence[str] = ()) -> None:
    """Remove all paths that match `patterns`, except the paths `kept` and their contents."""
    spared = [root / name for name in kept]
    for pattern in patterns:
        for path in root.glob(pattern):
            _remove(path, spared)


def _remove(path: Path, spared: Sequence[Path]) -> None:
    if path in spared:
        return
    if any(path in spare.parents for spare in spared):
        for inner in path.iterdir():
            _remove(inner, spared)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def gunzip(folder: Path) -> None:
    """Replace every `NAME.gz` below `folder` by `NAME`."""
    for packed in folder.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()


def libraries(root: Path, loaded_at_run_time: Iterable[str]) -> None:
    """Remove the shared libraries of `root` that no program or plug-in of it needs.

    Some libraries belong to dependencies that only maintainer scripts need. `loaded_at_run_time`
    names libraries that are opened by name. Raises `ImageError` when a needed library is missing.
    """
    folder = root / LIBRARIES
    present = {path.name: path for path in folder.glob("*.so*")}
    # Some programs have private libraries in a subfolder and search it (RUNPATH).
    private = {path.name for path in folder.glob("*/**/*.so*")}
    waiting = [name for path in (root / "usr").rglob("*") for name in _needed_from(path, folder)]
    waiting += [name for name in loaded_at_run_time if name in present]
    wanted: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in wanted or name in private:
            continue
        if name not in present:
            raise ImageError(f"the guest's root lacks the library {name}", "report it")
        wanted.add(name)
        waiting += _needed_by(present[name])
    for name in present.keys() - wanted:
        present[name].unlink()


def _needed_from(path: Path, folder: Path) -> list[str]:
    """Libraries of `folder` that a program or plug-in outside of it needs."""
    if path.parent == folder or not path.is_file():
        return []
    if path.is_symlink():
        target = path.resolve()
        return [target.name] if target.parent == folder else []
    return needed(path)


def _needed_by(library: Path) -> list[str]:
    if library.is_symlink():
        return [library.readlink().name]
    return needed(library)
