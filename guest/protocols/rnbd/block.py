"""One block device of a client's guest."""

from __future__ import annotations

from pathlib import Path

from bluebridge.guest.protocols.rnbd.engine.actions import ClientDevice
from bluebridge.guest.protocols.rnbd.nbd.device import NbdDevice
from bluebridge.guest.protocols.rnbd.nbd.kernel import KernelDevice

MOUNTS = Path("/proc/self/mounts")
SYS_BLOCK = Path("/sys/block")


class Block:
    """A device, its block device in the kernel, and what moves requests between the two."""

    def __init__(self, kernel: KernelDevice, server: NbdDevice) -> None:
        self.kernel = kernel
        self.server = server

    @property
    def device(self) -> ClientDevice:
        """The device."""
        return self.server.device

    def holder(self) -> str | None:
        """Who uses the block device, in words; None if nobody is known."""
        for line in MOUNTS.read_text().splitlines():
            source, target, *_ = line.split()
            if source == self.kernel.path:
                return f"mounted on {target}"
        holders = SYS_BLOCK / f"nbd{self.kernel.index}/holders"
        found = [path.name for path in holders.iterdir()] if holders.exists() else []
        return f"used by {found[0]}" if found else None
