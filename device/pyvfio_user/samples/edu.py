"""QEMU's teaching device `edu` (docs/specs/edu.rst) as a vfio-user device: `python edu.py SOCKET`.

A 1 MiB BAR0 with an identification, a liveness check, a factorial unit, an interrupt to raise and
acknowledge, and a DMA engine with a 4 KiB buffer.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import sys

from .. import ConfigSpace, Context, Irq, PciKind, Region, Reset

BAR_SIZE = 1 << 20
IDENTITY, LIVENESS, FACTORIAL, STATUS, IRQ_STATUS = 0x00, 0x04, 0x08, 0x20, 0x24
IRQ_RAISE, IRQ_ACKNOWLEDGE = 0x60, 0x64
DMA_SOURCE, DMA_DESTINATION, DMA_COUNT, DMA_COMMAND = 0x80, 0x88, 0x90, 0x98
STATUS_IRQ, DMA_START, DMA_TO_RAM, DMA_IRQ = 0x80, 1, 2, 4
FACTORIAL_DONE, DMA_DONE = 0x001, 0x100
BUFFER, BUFFER_SIZE = 0x40000, 4096  # as the DMA engine addresses it
MSI_CAPABILITY = struct.pack("<BBHQH", 0x05, 0, 0x0080, 0, 0)  # one vector, 64-bit address


class Edu:
    """The `edu` device: its `context`, registers and DMA buffer."""

    def __init__(self, socket_path: str) -> None:
        self.context = context = Context(socket_path)
        config = ConfigSpace(256)
        config.set_identity(vendor=0x1234, device=0x11E8, class_code=0x00FF00, revision=0x10, pin=1)
        config.set_bar(0, BAR_SIZE)
        config.add_capability(MSI_CAPABILITY, writable=b"\0\0\x71\0" + b"\xff" * 10)
        context.pci_init(PciKind.CONVENTIONAL)
        context.add_region(Region.CONFIG, 256, config.read, config.write)
        context.add_region(Region.BAR0, BAR_SIZE, self.read, self.write)
        context.set_irqs(Irq.INTX, 1)
        context.set_irqs(Irq.MSI, 1)
        context.set_irq_state_callback(Irq.INTX, self.intx_masked)
        context.set_reset_callback(self.reset)
        self.reset(Reset.DEVICE)

    def reset(self, why: Reset) -> None:
        """Set all registers and the DMA buffer to their state after power-on."""
        self.liveness = self.factorial = self.status = self.irq_status = 0
        self.dma = dict.fromkeys((DMA_SOURCE, DMA_DESTINATION, DMA_COUNT, DMA_COMMAND), 0)
        self.buffer = bytearray(BUFFER_SIZE)

    def read(self, offset: int, length: int) -> bytes:
        """Read a register; registers below 0x80 have 4 bytes, those of the DMA engine 4 or 8."""
        self.check(offset, length)
        registers = {
            IDENTITY: 0x010000ED,
            LIVENESS: self.liveness,
            FACTORIAL: self.factorial,
            STATUS: self.status,
            IRQ_STATUS: self.irq_status,
            **self.dma,
        }
        value = registers.get(offset, (1 << 64) - 1)
        return value.to_bytes(8, "little")[:length]

    def write(self, offset: int, data: bytes) -> None:
        """Write a register; writes to unknown or read-only ones are ignored."""
        self.check(offset, len(data))
        value = int.from_bytes(data, "little")
        if offset == LIVENESS:
            self.liveness = ~value & 0xFFFFFFFF
        elif offset == FACTORIAL:
            self.compute_factorial(value)
        elif offset == STATUS:
            self.status = value & STATUS_IRQ
        elif offset == IRQ_RAISE:
            self.raise_irq(value)
        elif offset == IRQ_ACKNOWLEDGE:
            self.irq_status &= ~value
        elif offset in self.dma:
            self.dma[offset] = value
            if offset == DMA_COMMAND and value & DMA_START:
                self.run_dma(value)

    def check(self, offset: int, length: int) -> None:
        """Raise OSError for a size of access that no register has."""
        if length != 4 and not (length == 8 and offset >= DMA_SOURCE):
            raise OSError(errno.EINVAL, f"{length} bytes at {offset:#x}")

    def compute_factorial(self, number: int) -> None:
        """Compute a factorial in 32 bits.

        There 34! and all greater ones are 0, so that it takes 34 steps at most.
        """
        self.factorial = 1
        for factor in range(2, min(number, 34) + 1):
            self.factorial = self.factorial * factor & 0xFFFFFFFF
        if self.status & STATUS_IRQ:
            self.raise_irq(FACTORIAL_DONE)

    def raise_irq(self, reasons: int) -> None:
        """Set bits in the interrupt status and assert the interrupt (MSI, else INTx)."""
        self.irq_status |= reasons
        if self.irq_status:
            self.context.trigger(0)

    def intx_masked(self, start: int, count: int, masked: bool) -> None:
        """Assert INTx again on unmask while a reason is left, since INTx is a level."""
        if not masked:
            self.raise_irq(0)

    def run_dma(self, command: int) -> None:
        """Copy between guest memory and the buffer, either all bytes or none."""
        self.dma[DMA_COMMAND] &= ~DMA_START
        count = self.dma[DMA_COUNT]
        inside, outside = self.dma[DMA_DESTINATION], self.dma[DMA_SOURCE]
        if command & DMA_TO_RAM:
            inside, outside = outside, inside
        start = inside - BUFFER
        memory = self.guest_memory(outside, count)
        if start < 0 or start + count > BUFFER_SIZE:
            raise OSError(errno.EFAULT, f"DMA of {count} bytes at {inside:#x} misses the buffer")
        if command & DMA_TO_RAM:
            memory[:] = self.buffer[start : start + count]
        else:
            self.buffer[start : start + count] = memory
        if command & DMA_IRQ:
            self.raise_irq(DMA_DONE)

    def guest_memory(self, address: int, count: int) -> memoryview:
        """Return a view of guest memory, which must not be kept past the access."""
        for region in self.context.dma_regions:
            if region.view is not None and region.holds(address, count):
                return region.view[address - region.iova :][:count]
        raise OSError(errno.EFAULT, f"no guest memory at {address:#x} for {count} bytes")


def main() -> None:
    """Serve one client after the other at the named socket until SIGTERM or SIGINT."""
    # Signals are bytes to poll for: an exception of a handler is lost where it comes in a callback.
    told, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(tell)
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: None)
    context = Edu(sys.argv[1]).context
    poll = select.poll()
    poll.register(context.poll_fd, select.POLLIN)
    poll.register(told, select.POLLIN)
    print("ready", flush=True)
    while (told, select.POLLIN) not in poll.poll():
        context.run()
    context.close()


if __name__ == "__main__":
    main()
