"""The adapter below its objects: bus, commands, context memory, numbers, and what is open.

Bring-up and tear-down follow Linux's mlx4_load_one and mlx4_unload_one (core/main.c).
"""

from __future__ import annotations

from random import Random

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, RESERVED_UARS
from bluebridge.guest.drivers.bus.interface import Bus
from bluebridge.guest.drivers.hca.resources.commands import FirmwareCommands
from bluebridge.guest.drivers.hca.resources.firmware import Firmware
from bluebridge.guest.drivers.hca.resources.health import HcaHealth
from bluebridge.guest.drivers.hca.resources.icm import Icm
from bluebridge.guest.drivers.hca.resources.limits import Limits
from bluebridge.guest.drivers.hca.resources.numbers import NumberSpaces
from bluebridge.guest.drivers.hca.resources.profile import DEFAULT, Profile
from bluebridge.guest.drivers.hca.resources.registries import CompletionOwner, EventOwner
from bluebridge.guest.drivers.hca.resources.reset import release_device, reset_device
from bluebridge.guest.drivers.hca.resources.vectors import InterruptVectors


class Adapter:
    """What queues, regions and the port of one device are made with.

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
        self.health = HcaHealth(bus, name)
        reset_device(bus, self.health)
        self.commands = FirmwareCommands(bus, self.health)
        self.firmware = Firmware(bus, self.commands, self.health)
        self.capabilities = self.commands.query(Opcode.QUERY_DEV_CAP)
        self.limits = Limits.of(self.capabilities)
        self.icm = Icm(bus, self.commands, self.capabilities, profile)
        self.numbers = NumberSpaces(self.capabilities, profile, chance)
        self.vectors = InterruptVectors(())

    def start(self, vectors: int) -> None:
        """Map the context memory, start the HCA, set up `vectors` interrupt vectors."""
        self.icm.map()
        size = 1 << (QUERY_DEV_CAP.get(self.capabilities, "uar_size_code") + 20)
        data = self.icm.init_hca()
        INIT_HCA.set(data, "log_uars", (size // PAGE_SIZE).bit_length() - 1)
        self.commands.run(Opcode.INIT_HCA, data=data)
        self.commands.query(Opcode.QUERY_ADAPTER)
        self.vectors = InterruptVectors(self.bus.enable_interrupts(vectors))

    def stop(self) -> None:
        """Close the HCA and take all memory back; its objects must be gone."""
        self.commands.run(Opcode.CLOSE_HCA)
        self.icm.unmap()
        self.firmware.stop()
        release_device(self.bus)
        self.commands.close()
