"""The shared libraries that an ELF file needs.

Source: the System V ABI, chapters "Program Header" and "Dynamic Section", 64-bit little endian.
"""

from __future__ import annotations

import struct
from pathlib import Path

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
