"""The errors that the driver of the HCA raises besides those of verbs."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Status, name_of
from bluebridge.guest.verbs.errors import VerbsError


class HcaError(VerbsError):
    """The device does not answer as a working ConnectX-3 does."""


class FirmwareError(VerbsError):
    """A firmware command came back with a status other than OK."""

    def __init__(self, opcode: int, status: int) -> None:
        try:
            text = Status(status).name
        except ValueError:
            text = "unknown status"
        super().__init__(f"command {name_of(opcode)} failed: status {status:#04x} ({text})")
        self.opcode = opcode
        self.status = status
