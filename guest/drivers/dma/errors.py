"""The errors that the DMA engine's driver raises, not compiled, as the one they derive from."""

from __future__ import annotations

from bluebridge.device.layout.ioat import ChannelError
from bluebridge.guest.errors import DeviceError


class DmaError(DeviceError):
    """The engine did not do what was asked of it."""


class DmaTimeout(DmaError):
    """A copy was not done within its time limit."""


class ChannelHalted(DmaError):
    """A channel has halted at a descriptor; it works again after `Channel.reset`.

    `reasons` are the names of the errors that it reported.
    """

    def __init__(self, text: str, reasons: ChannelError) -> None:
        super().__init__(text)
        self.reasons = reasons
