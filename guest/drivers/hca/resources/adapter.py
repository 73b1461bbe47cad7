"""The common parts of one adapter: reset, firmware, vectors, context memory, numbers, open objects.

Bring-up and tear-down follow Linux's mlx4_load_one and mlx4_unload_one (core/main.c, core/fw.c).
"""

from __future__ import annotations

import contextlib
import time
from random import Random

from bluebridge.device.layout.mlx4.bar0 import (
    CATAS_OFFSET,
    HCR,
    HCR_GO,
    OWNERSHIP_OFFSET,
    RESET_OFFSET,
    RESET_VALUE,
    SEMAPHORE_OFFSET,
)
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP, QUERY_FW
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Opcode
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, RESERVED_UARS
from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.common.health import ALL_ONES, HcaError, HcaHealth
from bluebridge.guest.drivers.common.owners import CompletionOwner, EventOwner
from bluebridge.guest.drivers.common.vectors import InterruptVectors
from bluebridge.guest.drivers.hca.resources.commands import FirmwareCommands
from bluebridge.guest.drivers.hca.resources.icm import DEFAULT, Icm, NumberSpaces, Profile
from bluebridge.guest.errors import VerbsError

COMMAND_REVISIONS = range(2, 4)

SEMAPHORE_SECONDS = 10.0
READY_SECONDS = 2.0


class Firmware:
    """The running firmware and its pages; raises `HcaError` for an unknown command interface."""

    def __init__(self, bus: Bus, commands: FirmwareCommands, health: HcaHealth) -> None:
        self._commands = commands
        self._memory: DmaMemory | None = None
        answer = commands.query(Opcode.QUERY_FW)
        version = [QUERY_FW.get(answer, f"fw_{part}") for part in ("major", "minor", "subminor")]
        self.version = ".".join(map(str, version))
        revision = QUERY_FW.get(answer, "cmd_interface_rev")
        if revision not in COMMAND_REVISIONS:
            raise HcaError(f"command interface revision {revision} is unknown")
        pages = QUERY_FW.get(answer, "fw_pages")
        if pages:
            self._memory = bus.allocate(pages << 12)
            self._map(self._memory.address, pages)
        # core/fw.c: mlx4_QUERY_FW decodes the BAR in this way.
        bar = (QUERY_FW.get(answer, "catas_bar") >> 6) * 2
        health.watch(bar, QUERY_FW.get(answer, "catas_offset"))
        commands.run(Opcode.RUN_FW)
        # Ask for the default log page size, as Linux does; old firmware may not know how.
        with contextlib.suppress(VerbsError):
            commands.run(Opcode.MOD_STAT_CFG, data=b"\0\0\1\0")

    def stop(self) -> None:
        """Take the firmware's pages back; the HCA must be closed."""
        self._commands.run(Opcode.UNMAP_FA)
        if self._memory is not None:
            self._memory.free()

    def _map(self, address: int, pages: int) -> None:
        entries = [bytes(MAP_ENTRY.pack(page=(address >> 12) + index)) for index in range(pages)]
        per_command = MAILBOX_SIZE // MAP_ENTRY.size
        for start in range(0, pages, per_command):
            part = entries[start : start + per_command]
            self._commands.run(Opcode.MAP_FA, len(part), data=b"".join(part))


def reset_device(bus: Bus, health: HcaHealth) -> None:
    """Own the device and reset it; raises `HcaError` when it is taken or does not answer.

    Linux sleeps a second after the reset; here the command register is polled instead, which is
    idle with toggle 0 as soon as the reset is done.
    """
    owner = bus.read32(0, OWNERSHIP_OFFSET)
    if owner == ALL_ONES:
        raise health.loss()
    if owner:
        raise HcaError("the device is owned by another driver (ownership word is not 0)")
    _wait(bus, health, SEMAPHORE_OFFSET, SEMAPHORE_SECONDS, "hardware semaphore")
    bus.write32(0, RESET_OFFSET, RESET_VALUE)
    after = "command register after the reset"
    _wait(bus, health, HCR.at("control"), READY_SECONDS, after, HCR_GO)
    bus.enable_master()  # as mlx4_load_one does: a reset by others took it away


def _wait(
    bus: Bus, health: HcaHealth, offset: int, seconds: float, what: str, mask: int = ALL_ONES
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        value = bus.read32(0, offset)
        if value != ALL_ONES and not value & mask:
            return
        if time.monotonic() > deadline:
            # Only after a while: a device may read as all ones in the middle of its reset.
            if value == ALL_ONES:
                raise health.loss()
            raise HcaError(f"the {what} stays at {value:#010x}")
        time.sleep(0.001)


class Adapter:
    """The common parts of one device, with which queues, regions and ports are made.

    `start` must follow the constructor: until then only `commands` and `capabilities` (the answer
    to QUERY_DEV_CAP) are of use, and the device has no context memory. Both raise `VerbsError`.
    """

    def __init__(
        self, bus: Bus, name: str, profile: Profile = DEFAULT, chance: Random | None = None
    ) -> None:
        self.bus = bus
        self.name = name
        self.uar = RESERVED_UARS
        self.queue_pairs: dict[int, CompletionOwner] = {}
        self.completion_queues: dict[int, EventOwner] = {}
        self.health = HcaHealth(bus, name, 0, CATAS_OFFSET)
        reset_device(bus, self.health)
        self.commands = FirmwareCommands(bus, self.health)
        self.firmware = Firmware(bus, self.commands, self.health)
        self.capabilities = self.commands.query(Opcode.QUERY_DEV_CAP)
        self.icm = Icm(bus, self.commands, self.capabilities, profile)
        self.numbers = NumberSpaces(self.capabilities, profile, chance)
        self.vectors = InterruptVectors(())

    def capability(self, name: str) -> int:
        """Return a field of the answer to QUERY_DEV_CAP."""
        return QUERY_DEV_CAP.get(self.capabilities, name)

    def start(self, vectors: int) -> None:
        """Map the context memory, start the HCA, set up `vectors` interrupt vectors."""
        self.icm.map()
        size = 1 << (self.capability("uar_size_code") + 20)
        data = self.icm.init_hca()
        INIT_HCA.set(data, "log_uars", (size // PAGE_SIZE).bit_length() - 1)
        self.commands.run(Opcode.INIT_HCA, data=data)
        self.commands.query(Opcode.QUERY_ADAPTER)
        self.vectors = InterruptVectors(self.bus.enable_interrupts(vectors))

    def stop(self) -> None:
        """Close the HCA and take all memory back; the adapter's objects must be gone."""
        self.commands.run(Opcode.CLOSE_HCA)
        self.icm.unmap()
        self.firmware.stop()
        self.bus.write32(0, OWNERSHIP_OFFSET, 0)  # mlx4_free_ownership
        self.commands.close()
