"""A device that shows what its client does to it, and misbehaves on request.

`python -m tests.models.probe_device SOCKET...`, a device for each socket. BAR0, little-endian
32-bit registers unless stated:

    0x00  write: trigger that vector; read: 1 if the last trigger reached an eventfd
    0x04  number of DEVICE_RESETs          0x08  number of clients lost
    0x0c  number of DMA regions            0x10  number of accesses to 0x14 and 0x18
    0x14  read or write raises KeyError    0x18  raises OSError(ENODEV)
    0x1c  read returns a byte too few      0x20  bit mask of masked MSI-X vectors
    0x24  1 if the view of the last unmapped DMA region was released
    0x28  write: appended to a list        0x2c  read: the sum of the list, with each value
                                                 multiplied by its position
    0x40  64-bit bus address               0x48  64 bits of guest memory there, read and write
    0x50  1 if the client mapped that memory read-only

BAR1 has 1 MiB of zeros and cannot be written, BAR2 not be read: libvfio-user serves both.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys

from bluebridge.device.pyvfio_user import (
    ConfigSpace,
    Context,
    DmaRegion,
    Irq,
    Region,
    Reset,
    interrupter,
)

VECTORS = 16


class Probe:
    """The device."""

    def __init__(self, path: str) -> None:
        self.context = Context(path)
        self.context.pci_init()
        config = ConfigSpace(4096)
        config.set_identity(vendor=0x1B36, device=0x0100, class_code=0xFF0000)
        self.context.add_region(Region.CONFIG, 4096, config.read, config.write)
        self.context.add_region(Region.BAR0, 4096, self.read, self.write)
        self.context.add_region(Region.BAR1, 1 << 20, lambda offset, length: bytes(length), None)
        self.context.add_region(Region.BAR2, 4096, None, lambda offset, data: None)
        self.context.set_irqs(Irq.MSIX, VECTORS)
        self.context.set_irq_state_callback(Irq.MSIX, self.masking)
        self.context.set_dma_callbacks(self.on_map, self.on_unmap)
        self.context.set_reset_callback(self.reset)
        self.triggered = self.misdeeds = self.masked = 0
        self.resets = dict.fromkeys(Reset, 0)
        self.mapped: list[DmaRegion] = []
        self.unmapped: DmaRegion | None = None
        self.values: list[int] = []
        self.address = 0

    def masking(self, start: int, count: int, masked: bool) -> None:
        """Keep the mask."""
        bits = ((1 << count) - 1) << start
        self.masked = self.masked | bits if masked else self.masked & ~bits

    def on_map(self, region: DmaRegion) -> None:
        """Keep the region."""
        self.mapped.append(region)

    def on_unmap(self, region: DmaRegion) -> None:
        """The view must still work here."""
        if region.view is not None:
            bytes(region.view[:1])
        self.mapped.remove(region)
        self.unmapped = region

    def reset(self, why: Reset) -> None:
        """Count it."""
        self.resets[why] += 1

    def view_is_dead(self) -> int:
        """1 if the last unmapped region's view refuses to be used."""
        if self.unmapped is None or self.unmapped.view is None:
            return 0
        try:
            len(self.unmapped.view)
        except ValueError:
            return 1
        return 0

    def window(self) -> memoryview:
        """Eight bytes of guest memory at the address register."""
        for region in self.mapped:
            if region.view is not None and region.holds(self.address, 8):
                return region.view[self.address - region.iova :][:8]
        raise OSError(errno.EFAULT, f"nothing at {self.address:#x}")

    def read(self, offset: int, length: int) -> bytes:
        """See the table above."""
        if offset == 0x48:
            return bytes(self.window())
        if offset == 0x1C:
            return bytes(length - 1)
        self.misbehave(offset)
        registers = {
            0x00: self.triggered,
            0x04: self.resets[Reset.DEVICE],
            0x08: self.resets[Reset.LOST_CONNECTION],
            0x0C: len(self.mapped),
            0x10: self.misdeeds,
            0x20: self.masked,
            0x24: self.view_is_dead(),
            0x2C: sum(place * value for place, value in enumerate(self.values, 1)) & 0xFFFFFFFF,
            0x40: self.address,
        }
        if offset == 0x50:
            registers[0x50] = int(self.window().readonly)
        return registers.get(offset, 0).to_bytes(8, "little")[:length].ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """See the table above."""
        self.misbehave(offset)
        value = int.from_bytes(data, "little")
        if offset == 0x00:
            self.triggered = int(self.context.trigger(value))
        elif offset == 0x28:
            self.values.append(value)
        elif offset == 0x40:
            self.address = value
        elif offset == 0x48:
            self.window()[:] = data

    def misbehave(self, offset: int) -> None:
        """Raise what the offset asks for."""
        self.misdeeds += offset in (0x14, 0x18)
        if offset == 0x14:
            raise KeyError("as requested")
        if offset == 0x18:
            raise OSError(errno.ENODEV, "as requested")


def main() -> None:
    """Serve until SIGTERM."""
    # Not by an exception of a handler: it could be raised, and lost, within a callback.
    told, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    interrupter.enable()
    contexts = {
        context.poll_fd: context for context in (Probe(path).context for path in sys.argv[1:])
    }
    poll = select.poll()
    for fd in contexts:
        poll.register(fd, select.POLLIN)
    poll.register(told, select.POLLIN)
    print("ready", flush=True)
    try:
        while True:
            for fd, _ in poll.poll():
                if fd == told:
                    if signal.SIGTERM in os.read(told, 4096):
                        return
                    continue
                contexts[fd].run()
    finally:
        for context in contexts.values():
            context.close()


if __name__ == "__main__":
    main()
