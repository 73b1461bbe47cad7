"""Makes C function pointers of Python functions; exceptions never reach the C caller."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from ._library import Library, Pointer
from .constants import LOG_DEBUG, LOG_EMERGENCY

ALL_LOGGED: Final = 100
"""Repetitions below this number are all logged."""

log: Final = logging.getLogger(__name__)
library_log: Final = logging.getLogger(f"{__name__.rpartition('.')[0]}.library")

Read = Callable[[int, int], bytes]
Write = Callable[[int, bytes], None]
Run = Callable[[int, bytes, int], None]
Raised = tuple[type[BaseException], BaseException, TracebackType | None]

_MOST_ERRNO: Final = 4096


class Throttle:
    """Counts repetitions: the first 99 are logged, then those whose number is a power of two."""

    def __init__(self) -> None:
        self.count = 0

    def admits(self) -> bool:
        """Count one more repetition; return whether to log it."""
        self.count += 1
        return self.count < ALL_LOGGED or self.count & (self.count - 1) == 0


class Complaints:
    """Warnings about what the clients of one device send."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._throttle = Throttle()

    def __call__(self, text: str) -> None:
        """Log `text` as a warning, unless there were too many."""
        if self._throttle.admits():
            self._log.warning("%s: %s (%d so far)", self._name, text, self._throttle.count)


class Callbacks:
    """The callbacks of one context; they live as long as this object.

    An exception is logged with its traceback (from the hundredth on only at every power of two:
    a guest can provoke them at will) and the C caller gets the error value, with errno taken
    from an OSError, else EIO. A `BaseException` that is no `Exception` is kept in `interrupt` until
    `raise_interrupt`.
    """

    def __init__(self, library: Library, name: str) -> None:
        self._library = library
        self._name = name
        self._kept: list[Pointer] = []
        self._failures = Throttle()
        self.interrupt: BaseException | None = None

    def make(
        self, signature: str, function: Callable[..., Any], what: str, error: int | None = None
    ) -> Pointer:
        """Return a C function pointer of type `signature` that calls `function`."""

        error_of = self.failing(what)

        def failed(_: type[BaseException], raised: BaseException, trace: TracebackType) -> None:
            # Otherwise the library would use the errno of an earlier call, which may be 0.
            self._library.errno = error_of(raised.with_traceback(trace))

        handle = self._library.callback(signature, function, failed, error)
        self._kept.append(handle)
        return handle

    def guarded(self, function: Callable[[int, bytes, int], None], what: str) -> Run:
        """Wrap `function` so that its exceptions are logged instead of raised."""

        def call(offset: int, data: bytes, width: int) -> None:
            try:
                function(offset, data, width)
            except Exception as raised:
                self._report(what, (type(raised), raised, raised.__traceback__))

        return call

    def guarded_read(self, function: Read, what: str) -> Read:
        """Wrap a read so that its exceptions are logged; it then returns no bytes."""

        def call(offset: int, length: int) -> bytes:
            try:
                return function(offset, length)
            except Exception as raised:
                self._report(what, (type(raised), raised, raised.__traceback__))
                return b""

        return call

    def failing(self, what: str) -> Callable[[BaseException], int]:
        """Return a function that keeps or logs an exception and returns the errno to fail with."""

        def failed(raised: BaseException) -> int:
            if not isinstance(raised, Exception):
                self.interrupt = raised
                return errno.EIO
            self._report(what, (type(raised), raised, raised.__traceback__))
            number = raised.errno if isinstance(raised, OSError) else None
            return number if number and 0 < number < _MOST_ERRNO else errno.EIO

        return failed

    def _report(self, what: str, raised: Raised) -> None:
        if self._failures.admits():
            count = self._failures.count
            log.error("%s: %s failed (%d so far)", self._name, what, count, exc_info=raised)

    def raise_interrupt(self) -> None:
        """Raise the exception besides `Exception` that a callback raised.

        An example is KeyboardInterrupt.
        """
        if self.interrupt is not None:
            caught, self.interrupt = self.interrupt, None
            raise caught

    def region(self, index: int, read: Read | None, write: Write | None) -> Pointer:
        """Return the library's access callback of a region.

        It gets the accesses that the filter does not serve.
        """
        window = self._library.buffer
        do_read = read or _no_read
        do_write = write or _no_write

        def access(_: Pointer, buffer: Pointer, count: int, offset: int, is_write: bool) -> int:
            if is_write:
                do_write(offset, window(buffer, count)[:])
            else:
                window(buffer, count)[:] = do_read(offset, count)  # ValueError: another length
            return count

        return self.make("vfu_region_access_cb_t *", access, f"access to region {index}", -1)

    def log(self) -> tuple[Pointer, int]:
        """Return the library's log function and level.

        It is silent unless the logger is at DEBUG.
        """
        if not library_log.isEnabledFor(logging.DEBUG):
            return self._library.null, LOG_EMERGENCY
        string = self._library.string

        def say(_: Pointer, level: int, message: Pointer) -> None:
            library_log.debug("%s: <%d> %s", self._name, level, string(message).decode("latin-1"))

        return self.make("vfu_log_fn_t *", say, "log"), LOG_DEBUG


def _no_read(offset: int, length: int) -> bytes:
    raise PermissionError(errno.EPERM, f"{length} bytes read at {offset:#x}: write-only region")


def _no_write(offset: int, data: bytes) -> None:
    raise PermissionError(errno.EPERM, f"{data!r} written at {offset:#x}: read-only region")
