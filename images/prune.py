"""Removes unused files and shared libraries from an unpacked root.

The libraries that an ELF file needs: the System V ABI, chapters "Program Header" and "Dynamic
Section", 64-bit little endian.
"""

from __future__ import annotations

import gzip
import shutil
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.images.report import ImageError
from bluebridge.images.unpack import LIBRARIES

MAGIC = b"\x7fELF\x02\x01"
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
ENTRY = struct.Struct("<qQ")
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5


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
