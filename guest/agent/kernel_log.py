"""Copying of the kernel's errors, one line each, to a serial line of their own.

Kernel messages below an emergency stay off the console, whose output the host reads. Those of level
error and worse go to the second serial line, which QEMU writes into the same transcript: messages
about a guest that does not answer name that file.
"""

from __future__ import annotations

import contextlib
import os

from bluebridge.guest.agent.loop import READ, Loop

MESSAGES = "dev/kmsg"
SERIAL = "dev/ttyS1"
WORST = 1
"""The level up to which the kernel itself writes to the console.

images/guest/init sets it by `dmesg -n 2`.
"""
ERROR = 3
LONGEST_RECORD = 8192
LEVEL_MASK = 7
BURST = 64
"""The most records that are read before other work of the agent gets its turn."""


def error_line(record: bytes) -> bytes | None:
    """Return the line for a record of /dev/kmsg if it is an error, else None.

    A record is `PRIORITY,NUMBER,MICROSECONDS,FLAGS[,...];TEXT` and lines of properties, which begin
    with a space (Linux Documentation/ABI/testing/dev-kmsg).
    """
    head, separator, text = record.partition(b";")
    words = head.split(b",")
    if not separator or len(words) < 3 or not (words[0].isdigit() and words[2].isdigit()):
        return None
    if not WORST < int(words[0]) & LEVEL_MASK <= ERROR:
        return None
    seconds, micros = divmod(int(words[2]), 1000000)
    return b"[%5d.%06d] %b\n" % (seconds, micros, text.partition(b"\n")[0])


class KernelErrors:
    """Copies errors of the kernel's log to a serial line, also those from before its start."""

    def __init__(self, loop: Loop, root: str = "/") -> None:
        """Open log and second serial line; raises `OSError` where either is missing."""
        self._source = os.open(os.path.join(root, MESSAGES), os.O_RDONLY | os.O_NONBLOCK)
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            self._line = os.open(os.path.join(root, SERIAL), flags)
        except OSError:
            os.close(self._source)
            raise
        loop.add(self._source, READ, self._ready)

    def _ready(self, events: int) -> None:
        """Copy new records; what the line does not take at once is lost, since none may wait."""
        for _ in range(BURST):
            try:
                record = os.read(self._source, LONGEST_RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            if (line := error_line(record)) is not None:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._line, line)
