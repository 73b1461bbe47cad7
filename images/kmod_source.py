"""The copy of a module's source in the sandbox: its path, its files, its owner."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from bluebridge.images.errors import ImageError
from bluebridge.images.sandbox import SYSTEM

SAFE = re.compile(r"[\w./+@%-]+", re.ASCII)
"""Paths that kbuild can build in: it supports neither blanks nor colons."""
RESERVED = (*SYSTEM, "symvers", "module")
NOT_COPIED = {".git", ".svn", ".hg", "modules.order", "Module.symvers", ".tmp_versions"}


def sandbox_path(folder: Path) -> Path:
    """Return the path that `folder` is copied to, relative to the sandbox's root.

    Its own path where that is possible, so that messages, absolute paths and headers in
    neighbouring folders are the same inside; else a folder in `module`.
    """
    inside = folder.relative_to("/")
    if SAFE.fullmatch(str(inside)) and inside.parts and inside.parts[0] not in RESERVED:
        return inside
    return Path("module") / re.sub(r"[^\w.+-]", "_", folder.name or "root", flags=re.ASCII)


def copy_source(source: Path, target: Path) -> None:
    """Copy a folder, with links as they are and without the products of an earlier build.

    A link to a file outside of the folder has no target in the sandbox, so the build cannot read
    files that only this user may read. Raises `ImageError`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_unwanted, dirs_exist_ok=True)
    except shutil.Error as error:
        first = error.args[0][0]
        raise ImageError(f"cannot copy {first[0]}: {first[2]}", "make it readable") from error
    except OSError as error:
        raise ImageError(
            f"cannot copy {error.filename or source}: {error.strerror}",
            "make it readable, or name a roomier folder in TMPDIR",
        ) from error


def _unwanted(folder: str, names: list[str]) -> set[str]:
    """Products of kbuild (each has its `.NAME.cmd`), version control, and device files."""
    known = set(names)
    return {
        name
        for name in names
        if name in NOT_COPIED
        or name.endswith((".ko", ".mod.c"))
        or (name.startswith(".") and name.endswith(".cmd"))
        or f".{name}.cmd" in known
        or not _copyable(os.lstat(os.path.join(folder, name)).st_mode)
    }


def _copyable(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def make_writable_by(tree: Path, uid: int) -> None:
    """Make a private copy writable by the user `uid`, who builds; as root also owned by it."""
    for folder, _, names in os.walk(tree):
        for path in (Path(folder), *(Path(folder) / name for name in names)):
            if path.is_symlink():
                continue
            path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
            if os.geteuid() == 0:
                os.chown(path, uid, uid)


def plain_files(tree: Path) -> list[Path]:
    """Plain files below `tree`, without links, whose targets the build has chosen."""
    return sorted(
        path
        for folder, _, names in os.walk(tree)
        for path in (Path(folder) / name for name in names)
        if stat.S_ISREG(path.lstat().st_mode)
    )
