"""The errors that the DMA engine's driver raises."""

from __future__ import annotations

from bluebridge.device.layout.ioat.registers import ChannelError
from bluebridge.guest.errors import DeviceError


class DmaError(DeviceError):
    """The engine does not do what was asked."""


class DmaTimeout(DmaError):
    """A copy was not done in time."""


class ChannelHalted(DmaError):
    """A channel has halted over a descriptor; `reasons` says why. It works again after `reset`."""

    def __init__(self, text: str, reasons: ChannelError) -> None:
        super().__init__(text)
        self.reasons = reasons
