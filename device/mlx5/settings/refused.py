"""The refusal of a firmware command: status, syndrome, and the reason in words."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Status


class Refused(Exception):
    """A command ends with a `status` other than OK; `reason` goes into the log.

    `syndrome` is 32 bits that drivers print and never read, so that each refusal has its own.
    """

    def __init__(self, status: Status, reason: str = "", syndrome: int = 0) -> None:
        super().__init__(f"{status.name}: {reason}" if reason else status.name)
        self.status = status
        self.reason = reason
        self.syndrome = syndrome
