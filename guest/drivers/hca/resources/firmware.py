"""Starting the firmware and giving it the memory it asks for (core/fw.c, core/main.c)."""

from __future__ import annotations

import contextlib

from bluebridge.device.layout.mlx4.capabilities import QUERY_FW
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Opcode
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY
from bluebridge.guest.drivers.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.hca.resources.commands import FirmwareCommands
from bluebridge.guest.drivers.hca.resources.errors import HcaError
from bluebridge.guest.drivers.hca.resources.health import HcaHealth
from bluebridge.guest.verbs.errors import VerbsError

COMMAND_REVISIONS = range(2, 4)


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
