"""Runs in a guest: rdma-core's own tests, one JSON line for each.

    python3 in_guest.py FOLDER [OPTION ...]

FOLDER holds the package `tests`; options are those of its `run_tests.py` (`--gid N`). Tests of
vendors' devices are left out; with the variable ONLY, all are but those that begin so. Tests of
DMA-BUF want a GPU; here its memory is that of a file (`/dev/udmabuf`).
"""

from __future__ import annotations

import fcntl
import gc
import json
import mmap
import os
import struct
import sys
import time
import unittest
from importlib import import_module
from typing import Any

OTHERS = ("test_mlx5", "test_efa", "test_cuda")
UDMABUF_CREATE = 0x40187542


class Lines(unittest.TestResult):
    """Prints a test's outcome when it is known: id, status, reason, seconds."""

    def startTest(self, test: unittest.TestCase) -> None:
        """Take the time."""
        super().startTest(test)
        self._start = time.monotonic()

    def _line(self, test: unittest.TestCase, status: str, reason: str = "") -> None:
        seconds = round(time.monotonic() - self._start, 3)
        found = {"test": test.id(), "status": status, "reason": reason, "seconds": seconds}
        print(json.dumps(found), flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """A test passed."""
        self._line(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """A test says why it cannot run here."""
        self._line(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """A test failed; the reason is the exception's first line."""
        self._line(test, "failed", _reason(err))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """A test broke."""
        self._line(test, "failed", _reason(err))


def _reason(err: Any) -> str:
    kind, value, _ = err
    return f"{kind.__name__}: {value}".splitlines()[0]


class Udmabuf(int):
    """A DMA-BUF over memory of a file, as rdma-core's tests use one of a GPU."""

    map_offset = 0
    drm_fd: int
    """The file, through which its memory is mapped."""

    def __new__(cls, size: int, **_: int) -> Udmabuf:
        """Make one of whole pages; raises `OSError`."""
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        file = os.memfd_create("memory", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, pages)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        maker = os.open("/dev/udmabuf", os.O_RDWR)
        try:
            # Only with memory that it may change does ioctl return what the kernel returned.
            wanted = bytearray(struct.pack("=IIQQ", file, 0, 0, pages))
            made = fcntl.ioctl(maker, UDMABUF_CREATE, wanted)
        finally:
            os.close(maker)
        found = super().__new__(cls, made)
        found.drm_fd = file
        return found

    def __del__(self) -> None:
        """Close both files; a registration keeps the memory."""
        os.close(self)
        os.close(self.drm_fd)


def _without_gpu() -> None:
    """Let the tests of DMA-BUF make their memory by `Udmabuf`."""
    tests: Any = import_module("tests.test_mr")
    register = tests.DmaBufMR

    def dmabuf_region(pd: Any, length: int, access: int, *, offset: int = 0, **_: int) -> Any:
        return register(pd, length, access, Udmabuf(length + offset), offset)

    tests.DmaBuf, tests.DmaBufMR = Udmabuf, dmabuf_region


def main() -> None:
    """Run all generic tests.

    Objects of tests that were skipped are never collected: pyverbs then closes them after their
    context, in freed memory, and now and then crashes.
    """
    folder = sys.argv.pop(1)
    sys.path[:0] = [folder, f"{folder}/tests"]
    package = import_module("tests")
    package.parser.parse_args()
    _without_gpu()
    suite, only = unittest.TestSuite(), os.environ.get("ONLY")
    for module in package.__test_modules__:
        name = module.__name__.rpartition(".")[2]
        if name.startswith(only) if only else not name.startswith(OTHERS):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    gc.disable()
    suite.run(Lines())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
