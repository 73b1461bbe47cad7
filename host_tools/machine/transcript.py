"""A guest's console transcript, searched for trouble of the guest's kernel."""

from __future__ import annotations

import re
from pathlib import Path

from bluebridge.host_tools.errors import LabError

FAILURES: tuple[tuple[str, str], ...] = (
    (r"Kernel panic - not syncing[^\r\n]*", "the guest's kernel panicked"),
    (r"\bOops: [^\r\n]*", "the guest's kernel had an Oops"),
    (r"(?:kernel )?BUG: [^\r\n]*|kernel BUG at [^\r\n]*", "the guest's kernel hit a BUG"),
    (r"watchdog: BUG: soft lockup[^\r\n]*", "a CPU of the guest is locked up"),
    (r"INFO: task [^\r\n]* blocked for more than[^\r\n]*", "a task hangs in the guest"),
    (r"Out of memory: Killed process[^\r\n]*", "the guest ran out of memory"),
)
"""Failures of a guest that end every wait: the pattern on the console, and its meaning."""

_TAIL_BYTES = 8000


class Transcript:
    """The file to which QEMU writes the console, watched for a failing kernel."""

    def __init__(self, guest: str, path: Path) -> None:
        self.guest = guest
        self.path = path
        self._position = 0
        self._found: LabError | None = None

    def skip(self) -> None:
        """Ignore what has been written up to now, since the guest is started anew."""
        self._position = self.path.stat().st_size if self.path.exists() else 0
        self._found = None

    def trouble(self) -> LabError | None:
        """Return the first failure since the start of the guest; None if there is none."""
        if self._found is None and self.path.exists():
            with self.path.open("rb") as stream:
                stream.seek(self._position)
                new = stream.read()
            # Stop before an unfinished line, so that a pattern cut in two is seen next time.
            whole = new[: new.rfind(b"\n") + 1]
            self._position += len(whole)
            self._found = self._judge(whole.decode(errors="replace"))
        return self._found

    def _judge(self, text: str) -> LabError | None:
        for pattern, meaning in FAILURES:
            if (match := re.search(pattern, text)) is not None:
                return LabError(
                    f"guest {self.guest}: {meaning} ({match.group(0).strip()})",
                    f"read {self.path}",
                    self.tail(),
                )
        return None

    def tail(self) -> str:
        """Return the last part of the transcript as text."""
        if not self.path.exists():
            return ""
        return self.path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
