"""The catastrophic error buffer: zeros while the adapter works (Linux `mlx4/catas.c`)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.bar0 import (
    CATAS,
    CATAS_CODE_INJECTED,
    CATAS_DWORDS,
    CATAS_LETTERS,
    CATAS_OFFSET,
)

_SIZE: Final = CATAS_DWORDS * 4


class Health:
    """The state of internal errors (`failed`), and the contents of the error buffer."""

    def __init__(self) -> None:
        self.failed = False
        self._buffer = bytes(_SIZE)

    def reset(self) -> None:
        """Clear the error and the buffer."""
        self.failed = False
        self._buffer = bytes(_SIZE)

    def fail(self, reason: str) -> None:
        """Note an error and fill the buffer: a code, and the reason as far as there is room."""
        text = reason.encode("ascii", "replace")
        text = text[:CATAS_LETTERS].ljust(CATAS_LETTERS, b"\0")
        self._buffer = bytes(CATAS.pack(code=CATAS_CODE_INJECTED, text=text))
        self.failed = True

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of BAR0 at `offset`: of the buffer, zeros elsewhere."""
        start = offset - CATAS_OFFSET
        if start >= 0 and start + length <= _SIZE:
            return self._buffer[start : start + length]
        return bytes(length)
