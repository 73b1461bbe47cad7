"""The common parts of one adapter: bus, commands, context memory, numbers, and open objects.

Bring-up and tear-down follow Linux's mlx4_load_one and mlx4_unload_one (core/main.c).
"""

from __future__ import annotations

from random import Random
from typing import Protocol

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
from bluebridge.guest.drivers.hca.resources.reset import release_device, reset_device
from bluebridge.guest.drivers.hca.resources.vectors import InterruptVectors
from bluebridge.guest.verbs.values import CompletionQueue


class CompletionOwner(Protocol):
    """The calls that a completion queue makes to the queue pair of a completion."""

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""

    @property
    def port_number(self) -> int:
        """The number of the queue pair's port, from 1 on."""

    def complete_send(self, index: int) -> int:
        """Retire send entries up to the one with 16-bit `index`; returns its wr_id."""

    def complete_recv(self, index: int) -> int:
        """Retire the oldest receive entry, or SRQ entry `index`; returns its wr_id."""

    def return_receive(self, index: int) -> None:
        """Give SRQ entry `index` back, whose completion nobody will read."""

    def destroy(self) -> None:
        """Reset the queue pair and free its resources."""


class EventOwner(CompletionQueue, Protocol):
    """The calls that a completion channel makes to the completion queue of an event."""

    def notified(self) -> None:
        """Count an event: the next arming carries the next sequence number."""


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
        """Close the HCA and take all memory back; the adapter's objects must be gone."""
        self.commands.run(Opcode.CLOSE_HCA)
        self.icm.unmap()
        self.firmware.stop()
        release_device(self.bus)
        self.commands.close()
