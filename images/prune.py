"""Making an unpacked root small: what nobody reads there, and libraries that nobody loads."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.images.elf import needed
from bluebridge.images.errors import ImageError
from bluebridge.images.unpack import LIBRARIES


def remove(root: Path, patterns: Iterable[str], kept: Sequence[str] = ()) -> None:
    """Remove everything that matches `patterns`, but for the paths `kept` and what they hold."""
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

    Packages are unpacked with all that their dependencies bring, also where those serve only
    maintainer scripts. `loaded_at_run_time` names libraries that are opened by name instead.
    Raises `ImageError` when something needs a library that is not there.
    """
    folder = root / LIBRARIES
    present = {path.name: path for path in folder.glob("*.so*")}
    # Some programs bring libraries of their own and look for them there (RUNPATH).
    private = {path.name for path in folder.glob("*/**/*.so*")}
    waiting = [name for path in (root / "usr").rglob("*") for name in _asks(path, folder)]
    waiting += [name for name in loaded_at_run_time if name in present]
    wanted: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in wanted or name in private:
            continue
        if name not in present:
            raise ImageError(f"the guest's root lacks the library {name}", "report it")
        wanted.add(name)
        waiting += _leads_to(present[name])
    for name in present.keys() - wanted:
        present[name].unlink()


def _asks(path: Path, folder: Path) -> list[str]:
    """What a program or plug-in asks of the linker's own `folder`; nothing for what lies in it."""
    if path.parent == folder or not path.is_file():
        return []
    if path.is_symlink():
        target = path.resolve()
        return [target.name] if target.parent == folder else []
    return needed(path)


def _leads_to(library: Path) -> list[str]:
    if library.is_symlink():
        return [library.readlink().name]
    return needed(library)
