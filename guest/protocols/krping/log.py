"""Log lines in the style of the kernel: `[   12.345678] krping: text`."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TextIO

PREFIX = "krping: "


class Log:
    """A log to standard output and, when given, a file, which several threads share.

    `debugging` turns on a line for every step of every iteration, as the module's debug=1 does.
    """

    def __init__(
        self, stream: TextIO | None = None, path: str | None = None, *, debugging: bool = False
    ) -> None:
        self.debugging = debugging
        self._stream = stream if stream is not None else sys.stdout
        self._file = open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Log a line without the module's name, as krping logs most of its steps."""
        stamped = f"[{time.monotonic():12.6f}] {text}\n"
        with self._lock:
            for stream in (self._stream, self._file):
                if stream is not None:
                    # A full disk or a closed pipe must not end the run that is being logged.
                    with contextlib.suppress(OSError, ValueError):
                        stream.write(stamped)
                        stream.flush()

    def note(self, text: str) -> None:
        """Log a line that begins with the module's name."""
        self.line(PREFIX + text)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
