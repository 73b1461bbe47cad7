"""The RNBD devices of a client as block devices of its guest."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bluebridge.device.layout.net.rnbd import SECTOR, AccessMode
from bluebridge.guest.protocols.rnbd.engine.actions import (
    ClientAction,
    ClientDevice,
    DeviceState,
    Done,
    Log,
    Mapped,
    Offline,
    PermitFree,
    Remapped,
    Resized,
    SessionClosed,
    SessionReady,
    Unmapped,
)
from bluebridge.guest.protocols.rnbd.engine.client import RnbdClient
from bluebridge.guest.protocols.rnbd.nbd import kernel
from bluebridge.guest.protocols.rnbd.nbd.device import NbdDevice
from bluebridge.guest.protocols.rnbd.nbd.kernel import KernelDevice
from bluebridge.guest.protocols.rtrs.transport.loop import Loop

MOUNTS = Path("/proc/self/mounts")
SYS_BLOCK = Path("/sys/block")

Over = Callable[[int], None]
"""The type of a call that takes 0 or an errno at the end of an action."""

_REASONS = {
    errno.ENOENT: "the server exports nothing of that name",
    errno.EPERM: "another client has it open for writing: use --access ro or migration",
    errno.EACCES: "the server has it read-only: use --access ro",
}


class Block(NamedTuple):
    """A block device in the kernel, and the `NbdDevice` between it and its RNBD device."""

    kernel: KernelDevice
    server: NbdDevice

    def holder(self) -> str | None:
        """Return in words who uses the block device; None if no user is known."""
        for line in MOUNTS.read_text().splitlines():
            source, target, *_ = line.split()
            if source == self.kernel.path:
                return f"mounted on {target}"
        holders = SYS_BLOCK / f"nbd{self.kernel.index}/holders"
        found = [path.name for path in holders.iterdir()] if holders.exists() else []
        return f"used by {found[0]}" if found else None


def _nothing(errno: int) -> None:
    """Do nothing at the end of an action that nobody waits for."""


class BlockDevices:
    """Gives each mapped device a block device, and takes it away.

    `perform` carries out what the RTRS engine asks for.
    """

    def __init__(
        self, client: RnbdClient, loop: Loop, perform: Callable[[], None], log: Log
    ) -> None:
        self.client = client
        self.session = client.name
        self.blocks: dict[ClientDevice, Block] = {}
        self._loop = loop
        self._perform = perform
        self._log = log
        self.failed = False
        """True if a device could not be mapped, or got no block device."""
        self.closed = False
        """True when the session is over."""
        self._draining = False
        self._waiting: dict[tuple[str, ClientDevice], Over] = {}
        self._due: float | None = None

    @property
    def mapped(self) -> Sequence[tuple[str, ClientDevice]]:
        """Return the name of the block device (nbd0) and the device of each mapping."""
        return [(f"nbd{block.kernel.index}", device) for device, block in self.blocks.items()]

    def step(self) -> None:
        """Carry out all actions of both engines; a call from within an action does nothing."""
        if self._draining:
            return
        self.drain()
        self._perform()
        self.drain()

    def drain(self) -> None:
        """Carry out the client's actions; a call from within an action does nothing."""
        if self._draining:
            return
        self._draining = True
        try:
            while actions := self.client.take_actions():
                for action in actions:
                    self._take(action)
        finally:
            self._draining = False
        deadline = self.client.deadline
        if deadline is not None and deadline != self._due:
            self._due = deadline
            self._loop.call_at(deadline, self._expire)

    def map(self, name: str, access: AccessMode, over: Over = _nothing) -> None:
        """Map a device and make its block device; raises `OSError` and `ValueError`."""
        device = self.client.map(name, access, self._loop.now())
        self._waiting[Mapped.__name__, device] = over
        self.step()

    def remap(self, device: ClientDevice, over: Over) -> None:
        """Open a device again; raises `OSError`."""
        self.client.remap(device, self._loop.now())
        self._waiting[Remapped.__name__, device] = over
        self.step()

    def resize(self, device: ClientDevice, sectors: int) -> None:
        """Change the size of a device; raises `OSError`."""
        self.client.resize(device, sectors)
        self.step()

    def unmap(self, device: ClientDevice, *, force: bool, over: Over = _nothing) -> None:
        """End the block device, if there is one, and unmap.

        Raises `OSError`, EBUSY if it is mounted or otherwise in use, unless `force`.
        """
        block = self.blocks.get(device)
        holder = block.holder() if block is not None and not force else None
        if block is not None and holder is not None:
            raise OSError(errno.EBUSY, f"{block.kernel.path} is {holder}")
        self._end_block(device)
        self._waiting[Unmapped.__name__, device] = over
        self.client.unmap(device, self._loop.now())
        self.step()

    def _end_block(self, device: ClientDevice) -> None:
        block = self.blocks.pop(device, None)
        if block is not None:
            if not block.server.idle:
                # The kernel may wait for us with its lock held: let it see the end first.
                block.server.close()
            block.kernel.disconnect()
            block.server.close()

    def _take(self, action: ClientAction) -> None:
        """Carry out an action; requests are tested for first, since they are the most."""
        if isinstance(action, Done):
            block = self.blocks.get(action.device)
            if block is None:
                self.client.release(action.permit, self._loop.now())
            else:
                block.server.done(action)
        elif isinstance(action, PermitFree):
            if (block := self.blocks.get(action.device)) is not None:
                block.server.permit_free()
        else:
            wrong = self._change(action)
            if isinstance(action, Mapped | Remapped | Unmapped):
                over = self._waiting.pop((type(action).__name__, action.device), _nothing)
                over(wrong)

    def _change(self, action: ClientAction) -> int:
        wrong = action.errno if isinstance(action, Mapped | Remapped) else 0
        if isinstance(action, Mapped) and not wrong:
            wrong = self._make(action.device)
        elif isinstance(action, Resized):
            if (block := self.blocks.get(action.device)) is not None:
                block.kernel.resize(action.device.geometry.sectors)
        elif (words := words_for(action)) is not None:
            self.failed = self.failed or isinstance(action, Mapped)
            self.closed = self.closed or isinstance(action, SessionClosed)
            self._log(words)
        return wrong

    def _make(self, device: ClientDevice) -> int:
        """Make the block device; returns 0, or an errno and the device is unmapped."""
        try:
            made = kernel.connect(device.geometry, device.access, self.client.max_io_size)
        except OSError as error:
            self._log(f"no block device for {device.name}: {error.strerror}")
            self.failed = True
            self.client.unmap(device, self._loop.now())
            return error.errno or errno.EIO

        def ended() -> None:
            self._ended(device)

        server = NbdDevice(self.client, device, made.connection, self._loop, self.step, ended)
        self.blocks[device] = Block(made, server)
        self._log(f"mapped {made.path} size {device.geometry.sectors * SECTOR}")
        return 0

    def _ended(self, device: ClientDevice) -> None:
        """Unmap a device whose block device was disconnected in the kernel."""
        if self.blocks.pop(device, None) is not None:
            self.client.unmap(device, self._loop.now())
            self.drain()

    def _expire(self) -> None:
        self._due = None
        self.client.expire(self._loop.now())
        self.step()


def words_for(action: ClientAction) -> str | None:
    """Return a line for an action that a user should see, None for any other."""
    if isinstance(action, Offline):
        return f"{action.device.name} is offline: no path is connected"
    if isinstance(action, Remapped) and action.device.state == DeviceState.UNMAPPED:
        return None
    if isinstance(action, Remapped):
        failed = f"stays offline: {_reason(action.errno)}"
        return f"{action.device.name} {failed if action.errno else 'is online'}"
    if isinstance(action, Unmapped):
        return f"{action.device.name} is unmapped"
    if isinstance(action, Mapped):
        return f"{action.device.name} cannot be mapped: {_reason(action.errno)}"
    if isinstance(action, SessionReady) and action.errno:
        return f"no session: {os.strerror(action.errno)}: is the server running?"
    if isinstance(action, SessionClosed):
        return "the session is closed"
    return None


def _reason(error: int) -> str:
    return _REASONS.get(error, os.strerror(error))
