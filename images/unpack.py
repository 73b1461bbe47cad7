"""Unpacks packages into folders without installing them, so that no root rights are needed."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from bluebridge.images.report import ImageError
from bluebridge.images.run import run

MERGED = ("bin", "sbin", "lib", "lib64")
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def unpack(packages: Iterable[Path], root: Path) -> None:
    """Unpack Debian packages into `root` as one merged-/usr tree; no maintainer script runs."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        link = root / name
        if not link.is_symlink():
            link.symlink_to(f"usr/{name}")
    for package in packages:
        run(["dpkg-deb", "--extract", package, root], what=f"unpack {package.name}")


def foreign(root: Path, program: str, argv0: str | None = None) -> list[str]:
    """Start of a command line that runs `program` of an unpacked root on this host.

    The root's own dynamic linker and libraries are used, so neither chroot nor root is needed.
    """
    loader = root / LIBRARIES / "ld-linux-x86-64.so.2"
    return [
        str(loader),
        "--library-path",
        str(root / LIBRARIES),
        "--argv0",
        argv0 or Path(program).name,
        str(root / program),
    ]


def unpack_tar(archive: Path, root: Path, prefix: str) -> None:
    """Unpack the plain files of `archive` whose path, past its first folder, begins with `prefix`.

    For signed archives of Debian only: paths are not checked. Without `extractall`, since Python
    3.11.2 of Debian 12 lacks extraction filters, which later versions require.
    """
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, inside = member.name.partition("/")
            content = tar.extractfile(member) if inside.startswith(prefix) else None
            if content is not None:
                target = root / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as out:
                    shutil.copyfileobj(content, out)
                target.chmod(member.mode & 0o755)


def decompress(data: bytes) -> bytes:
    """Contents of an xz or zstd stream; trailing bytes after it are ignored."""
    if data.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        done = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=False)
        if done.stdout:
            return done.stdout
    raise ImageError("a compressed file of the kernel package is of an unknown kind", "report it")


BLOCK = 512
"""Bytes of a block, as `st_blocks` counts them."""


def tree_size(root: Path) -> int:
    """Bytes that a file, or all plain files below `root`, take on the disk; holes take none."""
    if not root.is_dir():
        return root.lstat().st_blocks * BLOCK
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * BLOCK
        for folder, _, names in os.walk(root)
        for name in names
    )
