"""A kernel that hangs while it boots, told by a console that says nothing more."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bluebridge.host_tools.errors import LabError

SECONDS = 15.0
"""The seconds without a word after which a kernel that does nothing, or spins, hangs."""
IDLE_SECONDS, SPIN_SECONDS = 1.0, 12.0
"""The processor time of QEMU in a silence, at most of a kernel that halted, at least of one that
spins. What is between them has to do with a busy host, or with the first steps of programs."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Silence:
    """The alarm for one boot of a kernel that writes its messages to the console."""

    def __init__(self, guest: str, transcript: Path, pid: int, patience: float = 1.0) -> None:
        """Watch QEMU's process `pid`; a slow kernel may spin `patience` times as long."""
        self._spin_seconds = SPIN_SECONDS * patience
        self._guest = guest
        self._transcript = transcript
        self._pid = pid
        self._size = -1
        self._since = 0.0
        self._processor = 0.0

    def trouble(self) -> LabError | None:
        """Return the error of a kernel that hangs; None while it may be getting on."""
        size, used = self._transcript.stat().st_size, _processor_seconds(self._pid)
        if size != self._size or used is None:
            self._size, self._since, self._processor = size, time.monotonic(), used or 0.0
            return None
        taken, silent = used - self._processor, time.monotonic() - self._since
        if silent < SECONDS or IDLE_SECONDS < taken < self._spin_seconds:
            return None
        text = self._transcript.read_text(errors="replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        what = f"guest {self._guest}: its kernel hangs"
        if not said:
            mend = (
                "build it with CONFIG_SERIAL_8250_CONSOLE and what `bluebridge kernel config` has"
            )
            return LabError(f"{what} without having said a word", mend)
        return LabError(f"{what} after {said[-1]!r}", f"read {self._transcript}", text)


def _processor_seconds(pid: int) -> float | None:
    """Return the processor time of a process and its threads; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS
