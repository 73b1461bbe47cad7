"""Files in the manner of Linux's sysfs, and parsers of the numbers and words written to them."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from bluebridge.guest.fuse.tree import Answer, File

_DECIMAL = re.compile(rb"([+-]?)([0-9]+)\n?")
_ANY_BASE = re.compile(rb"\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\n?")

Action = Callable[[Answer], None]


def is_word(data: bytes, word: str) -> bool:
    """Return True if `data` is the word, with or without a newline, as sysfs_streq."""
    return _until_zero(data).removesuffix(b"\n") == word.encode()


def parse_int(data: bytes) -> int:
    """Parse 32 bits as kstrtoint with base 10; raises `OSError`: EINVAL, ERANGE."""
    found = _DECIMAL.fullmatch(_until_zero(data))
    if found is None:
        raise OSError(errno.EINVAL, "not a number")
    value = int(found[2]) * (-1 if found[1] == b"-" else 1)
    if not -(1 << 31) <= value < 1 << 31:
        raise OSError(errno.ERANGE, "a number out of range")
    return value


def parse_unsigned(data: bytes) -> int:
    """Parse 64 bits as kstrtoul with base 0; raises `OSError`: EINVAL, ERANGE."""
    found = _ANY_BASE.fullmatch(_until_zero(data))
    if found is None:
        raise OSError(errno.EINVAL, "not a number")
    digits = found[1]
    if digits[:2] in (b"0x", b"0X"):
        value = int(digits, 16)
    else:
        value = int(digits, 8 if digits[:1] == b"0" else 10)
    if value >= 1 << 64:
        raise OSError(errno.ERANGE, "a number out of range")
    return value


def text(value: Callable[[], object]) -> File:
    """Return a file with one line."""
    return File(lambda: f"{value()}\n")


def command(name: str, action: Action) -> File:
    """Return a file that acts when "1" is written, and tells so when it is read."""

    def write(data: bytes, answer: Answer) -> None:
        if not is_word(data, "1"):
            raise OSError(errno.EINVAL, "not 1")
        action(answer)

    return File(lambda: f"Usage: echo 1 > {name}\n", write)


def _until_zero(data: bytes) -> bytes:
    """Return the bytes before the first zero, as the kernel takes what is written."""
    return data.partition(b"\0")[0]
