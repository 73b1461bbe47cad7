"""The I/OAT DMA engine: its registers, and the order in which its channels work."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from bluebridge.device.dma.channel import Copier, DmaChannel
from bluebridge.device.layout import ioat as layout
from bluebridge.device.layout.ioat import ChannelCommand
from bluebridge.device.pci.config_space import Bar, Identity
from bluebridge.device.pci.host import MasterBus
from bluebridge.device.pci.registers import LINE, RegisterFile, Slot

BARS = (Bar(0, layout.BAR0_SIZE),)
TURN_BYTES = 4 << 20
TURN_DESCRIPTORS = 64
"""Descriptors of one turn of a channel, which `TURN_BYTES` limits, too.

After a turn the other channels and all sockets are served.
"""
TURN_SECONDS = 0.001
"""Duration of the turns of all channels together, without the last piece of each."""
_STATUS = layout.CHANNEL.at("channel_status") - layout.CHANNEL_BASE
_ERROR = layout.CHANNEL.at("channel_error") - layout.CHANNEL_BASE
_ORDERS = ("chain_address_low", "chain_address_high", "completion_low", "completion_high")


def identity(version: int = 0x34) -> Identity:
    """Return the PCI identity of an engine of `version`, such as 0x34 for 3.4."""
    device = layout.DEVICES[version]
    return Identity(layout.VENDOR, device, layout.CLASS_DMA, layout.VENDOR, 0)


class DmaEngine:
    """Up to four channels that copy between any two addresses of the bus.

    The write of a channel's count executes its descriptors at once, up to the limits of a turn; the
    event loop executes the rest, the channels in turn. `clock` is in seconds.
    """

    def __init__(
        self,
        bus: MasterBus,
        *,
        version: int = 0x34,
        strict: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._version = version
        self._registers = RegisterFile(layout.BLOCKS, layout.BAR0_SIZE)
        self.copier = Copier(bus, strict, clock)
        self.channels = [DmaChannel(bus, n, self.copier, n) for n in range(layout.MOST_CHANNELS)]
        self._scheduled = False
        self._running = False
        self._describe()

    def _describe(self) -> None:
        self._registers.set("IOAT", "channel_count", len(self.channels))
        self._registers.set("IOAT", "transfer_capacity", layout.TRANSFER_CAPACITY)
        self._registers.set("IOAT", "version", self._version)

    def lines(self) -> dict[int, bytes]:
        """Return the lines of registers that are not all zero, by offset, without side effects."""
        lines = self._registers.lines()
        for number, channel in enumerate(self.channels):
            at = layout.CHANNEL_BASE + number * layout.CHANNEL_SIZE
            line = bytearray(lines.get(at, bytes(LINE)))
            line[_STATUS : _STATUS + 8] = channel.status.to_bytes(8, "little")
            line[_ERROR : _ERROR + 4] = channel.error.to_bytes(4, "little")
            lines[at] = bytes(line)
        return lines

    def chain_address(self, number: int) -> int:
        """Return the address of the first descriptor of channel `number` that software wrote."""
        return self._pair("chain_address", number)

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Read registers of BAR0."""
        number, within = divmod(offset - layout.CHANNEL_BASE, layout.CHANNEL_SIZE)
        if 0 <= number < len(self.channels) and within < 0x30:
            channel = self.channels[number]
            self._registers.set("CHANNEL", "channel_status", channel.status, number)
            self._registers.set("CHANNEL", "channel_error", channel.error, number)
        return self._registers.read(offset, length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write registers of BAR0 and carry out what they command."""
        for slot, value in self._registers.write(offset, data):
            if slot.block == "CHANNEL" and slot.index < len(self.channels):
                self._order(slot, value)
            elif slot.name == "interrupt_control":
                for channel in self.channels:
                    channel.interrupts = bool(value & layout.MASTER_INTERRUPT)

    def _order(self, slot: Slot, value: int) -> None:
        channel = self.channels[slot.index]
        if slot.name == "dma_count":
            channel.count(value)
            self._run()
        elif slot.name == "channel_control":
            if value & layout.REARM:
                channel.rearm()
        elif slot.name == "channel_command":
            self._command(channel, slot.index, value)
        elif slot.name == "channel_error":
            channel.error &= ~value
        elif slot.name.startswith("chain_address"):
            channel.chain(self._pair("chain_address", slot.index))
        elif slot.name.startswith("completion"):
            channel.completion = self._pair("completion", slot.index)

    def _pair(self, name: str, index: int) -> int:
        low = self._registers.get("CHANNEL", f"{name}_low", index)
        return low | self._registers.get("CHANNEL", f"{name}_high", index) << 32

    def _command(self, channel: DmaChannel, index: int, value: int) -> None:
        if value & ChannelCommand.RESET:
            channel.reset()
            for name in _ORDERS:
                self._registers.set("CHANNEL", name, 0, index)
        elif value & (ChannelCommand.SUSPEND | ChannelCommand.ABORT):
            channel.suspend()
        elif value & ChannelCommand.RESUME:
            channel.resume()
            self._run()

    # -- turns --------------------------------------------------------------------------------

    def _run(self) -> None:
        """Give every channel a turn, and schedule further turns while work is left.

        While a turn is scheduled, new work waits for it: otherwise each of several writes of the
        count in a row would be a turn of its own.
        """
        if self._running or self._scheduled:
            # When running, a descriptor has written this engine's own registers.
            self._schedule()
            return
        self._running = True
        try:
            busy = [channel for channel in self.channels if channel.busy]
            for channel in busy:
                self._turn(channel, TURN_SECONDS / len(busy))
        finally:
            self._running = False
        if any(channel.busy for channel in self.channels):
            self._schedule()

    def _turn(self, channel: DmaChannel, seconds: float) -> None:
        until = self._clock() + seconds
        left = TURN_BYTES
        for _ in range(TURN_DESCRIPTORS):
            if not channel.busy or left <= 0:
                return
            left -= channel.step(until)
            if self._clock() >= until:
                return

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._bus.call_soon(self._later)

    def _later(self) -> None:
        self._scheduled = False
        self._run()

    def reset(self) -> None:
        """Return engine and channels to their power-on state."""
        self._registers.reset()
        self._describe()
        for channel in self.channels:
            channel.interrupts = False
            channel.reset()
