"""Unpacked packages: folders of Debian's files without installing them, of which the unused go.

No root rights are needed. The libraries that an ELF file needs: the System V ABI, chapters "Program
Header" and "Dynamic Section", 64-bit little endian.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.images.report import ImageError, run

MERGED = ("bin", "sbin", "lib", "lib64")
LIBRARIES = "usr/lib/x86_64-linux-gnu"

BLOCK = 512
"""Bytes of a block, as `st_blocks` counts them."""

MAGIC = b"\x7fELF\x02\x01"
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
ENTRY = struct.Struct("<qQ")
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5


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


def tree_size(root: Path) -> int:
    """Bytes that a file, or all plain files below `root`, take on the disk; holes take none.

    What goes meanwhile, as when another process builds in a cache, takes none either.
    """
    if not root.is_dir():
        return _size(root)
    return sum(
        _size(os.path.join(folder, name)) for folder, _, names in os.walk(root) for name in names
    )


def _size(path: str | Path) -> int:
    try:
        return os.lstat(path).st_blocks * BLOCK
    except FileNotFoundError:
        return 0


def needed(path: Path) -> list[str]:
    """Names of the libraries that the dynamic linker loads for `path`.

    Empty for a static program and for a file that is no 64-bit ELF file. Raises `struct.error`
    or `IndexError` for a truncated ELF file.
    """
    with open(path, "rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            return []
    return needed_by(path.read_bytes())


def needed_by(image: bytes) -> list[str]:
    """The names of the shared libraries that an ELF file of 64 bits with these bytes needs."""
    segments = _segments(image)
    dynamic = next((found for found in segments if found[0] == PT_DYNAMIC), None)
    if dynamic is None:
        return []
    _, _, offset, _, _, size, _, _ = dynamic
    entries: list[tuple[int, int]] = []
    for tag, value in ENTRY.iter_unpack(image[offset : offset + size]):
        if tag == DT_NULL:
            break
        entries.append((tag, value))
    names = _file_offset(segments, next(value for tag, value in entries if tag == DT_STRTAB))
    return [_text(image, names + value) for tag, value in entries if tag == DT_NEEDED]


def _segments(image: bytes) -> list[tuple[int, ...]]:
    header = HEADER.unpack_from(image)
    start, size, count = header[5], header[9], header[10]
    return [SEGMENT.unpack_from(image, start + size * number) for number in range(count)]


def _file_offset(segments: list[tuple[int, ...]], address: int) -> int:
    """File offset of the bytes that are loaded at `address`."""
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == PT_LOAD and start <= address < start + size:
            return offset + address - start
    raise IndexError(f"no segment holds address {address:#x}")


def _text(image: bytes, offset: int) -> str:
    return image[offset : image.index(b"\0", offset)].decode()


def prune(root: Path, patterns: Iterable[str], kept: Sequence[str] = ()) -> None:
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


def prune_libraries(root: Path, loaded_at_run_time: Iterable[str]) -> None:
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
