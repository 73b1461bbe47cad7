"""Output files of commands: they appear when complete and replace files only on request."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bluebridge.device.buslog.reader import LogError

STANDARD_OUTPUT = Path("-")


@contextmanager
def opened(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Open `path` for writing; `-` is standard output.

    The file appears when the block ends, and not at all after an error. Raises `LogError` when it
    exists and `replace` is false, and when it cannot be written.
    """
    try:
        with _opened(path, replace=replace) as file:
            yield file
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise LogError(f"{path}: {error.strerror}; {_mend(error)}") from error


@contextmanager
def _opened(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    if path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.is_dir():
        raise LogError(f"{path} is a folder: name a file in it")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as device:  # such as a pipe to tshark
            yield device
        return
    if path.exists() and not replace:
        raise LogError(f"{path} exists: name another file or add --force")
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _mend(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or name a file on another disk"
    return "name a file that can be written"
