"""The exception by which a part of the adapter refuses a firmware command."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Status


class CommandError(Exception):
    """A firmware command ends with a status other than OK; `reason` goes into the log."""

    def __init__(self, status: Status, reason: str = "") -> None:
        super().__init__(f"{status.name}: {reason}" if reason else status.name)
        self.status = status
        self.reason = reason
