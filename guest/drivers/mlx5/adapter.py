"""The common parts of one adapter: start and stop, capabilities, doorbells, vectors, open objects.

Bring-up and tear-down follow Linux's mlx5_function_setup and mlx5_load (core/main.c).
"""

from __future__ import annotations

import threading
import time
from functools import cached_property
from random import Random, SystemRandom
from typing import Final, Protocol

from bluebridge.device.layout.mlx5 import caps, init_segment
from bluebridge.device.layout.mlx5.caps import GROUP_BYTES, QUERY_CAP_OFFSET, CapGroup
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import NIC_VPORT
from bluebridge.device.layout.mlx5.device_commands import (
    DRIVER_VERSION,
    MANAGE_PAGES_IN,
    PAGES_GIVEN,
    QUERY_ISSI,
    QUERY_PAGES,
    SET_ISSI,
)
from bluebridge.device.layout.mlx5.objects import SPECIAL_CONTEXTS, VPORT_OUT
from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.common.blueflame import BlueFlameRegister, BlueFlameUse
from bluebridge.guest.drivers.common.health import ALL_ONES, HcaError, HcaHealth
from bluebridge.guest.drivers.common.owners import CompletionOwner, EventOwner
from bluebridge.guest.drivers.common.vectors import InterruptVectors
from bluebridge.guest.drivers.mlx5.command_queue import CommandQueue
from bluebridge.guest.verbs.enums import WcOpcode

READY_SECONDS: Final = 2.0
PAGE: Final = 4096
VERSION: Final = b"Linux,bluebridge,1.0.0"
_ISSI: Final = 1
_BOOT, _INIT = 1, 2
_ERRORS: Final = init_segment.HEALTH + 0x3C
"""The word of the health buffer with the syndrome."""
_INITIALIZING: Final = 1 << 31
_HOST_ORDER: Final = 1
_USER_INDICES: Final = 1 << 24
_GENERAL_CHOICES: Final = {"log_uar_page_sz": 0, "cmdif_checksum": 0}


class Resettable(CompletionOwner, Protocol):
    """A queue pair as completions know it, and what they name it by."""

    @property
    def user_index(self) -> int:
        """The number by which completions name it."""

    def opcode_of(self, index: int) -> WcOpcode:
        """Return the operation of the send entry that begins at block `index`."""


class InterfaceHealth(HcaHealth):
    """The health of a device whose interface is up (core/health.c: sensor_nic_disabled).

    A reset takes it down, and with it the command queue: no command would end.
    """

    def _trouble(self) -> str:
        state = self._bus.read32(0, init_segment.QUEUE_LOW) >> 8 & 7
        return "the device was reset" if state == init_segment.NIC_DISABLED else ""


class Adapter:
    """The common parts of one device, with which queues, regions and ports are made.

    `start` must follow the constructor. Both raise `VerbsError`.
    """

    def __init__(self, bus: Bus, name: str, chance: Random | None = None) -> None:
        self.bus = bus
        self.name = name
        self.queue_pairs: dict[int, Resettable] = {}
        self.owners: dict[int, Resettable] = {}
        """Queue pairs by their user indices."""
        self.completion_queues: dict[int, EventOwner] = {}
        self.health = InterfaceHealth(bus, name, 0, _ERRORS)
        self.vectors = InterruptVectors(())
        self.uar = 0
        self.blueflame: BlueFlameRegister | None = None
        """Where posts with inline data are stored; None to ring for all."""
        self._chance = chance or SystemRandom()
        self._next_index = 0
        self._lent: list[DmaMemory] = []
        self._lock = threading.Lock()
        self._groups: dict[CapGroup, bytes] = {}
        self._make_ready()
        self.commands = CommandQueue(bus, self.health)

    def start(self, vectors: int) -> None:
        """Initialise the adapter, and set up `vectors` interrupt vectors and a doorbell page."""
        run = self.commands.run
        run(Opcode.ENABLE_HCA)
        supported = QUERY_ISSI.get(run(Opcode.QUERY_ISSI, output=QUERY_ISSI.size), "supported")
        if not supported >> _ISSI & 1:
            raise HcaError("the device does not know ISSI 1")
        run(Opcode.SET_ISSI, SET_ISSI.pack(current=_ISSI))
        self._lend_pages(_BOOT)
        self._choose_capabilities()
        self._lend_pages(_INIT)
        run(Opcode.INIT_HCA)
        if self.capability("driver_version"):
            run(Opcode.SET_DRIVER_VERSION, DRIVER_VERSION.pack(text=VERSION.ljust(64, b"\0")))
        self._groups.clear()
        self.vectors = InterruptVectors(self.bus.enable_interrupts(vectors))
        self.uar = self.commands.make(Opcode.ALLOC_UAR)

    def use_blueflame(self, use: BlueFlameUse) -> None:
        """Store what BlueFlame is for into the second register of the page; the first is rung.

        Raises `HcaError` for an adapter that does not advertise it.
        """
        if not self.capability("bf"):
            raise HcaError("the device has no BlueFlame: start it with --blueflame on")
        size = 1 << self.capability("log_bf_reg_size")
        place = self.uar * init_segment.UAR_BYTES + init_segment.SEND_DOORBELL + size
        self.blueflame = BlueFlameRegister(self.bus.write64, 0, place, size // 2, use)

    def stop(self) -> None:
        """Tear down and take all memory back; the adapter's objects must be gone."""
        self.commands.run(Opcode.DEALLOC_UAR, number=self.uar)
        self.commands.run(Opcode.TEARDOWN_HCA)
        self.commands.run(Opcode.DISABLE_HCA)
        for memory in self._lent:
            memory.free()
        self.commands.close()

    def capability(self, name: str, group: CapGroup = CapGroup.GENERAL) -> int:
        """Return a field of a group of capabilities as it is now."""
        if group not in self._groups:
            self._groups[group] = self._query(group, current=True)
        return caps.BY_GROUP[group].get(self._groups[group], name)

    @cached_property
    def local_dma_lkey(self) -> int:
        """The local key that reaches all DMA memory in every PD."""
        answer = self.commands.run(Opcode.QUERY_SPECIAL_CONTEXTS, output=SPECIAL_CONTEXTS.size)
        return SPECIAL_CONTEXTS.get(answer, "reserved_lkey")

    @property
    def firmware(self) -> str:
        """The version of the firmware."""
        first = self.bus.read32(0, init_segment.FIRMWARE)
        third = self.bus.read32(0, init_segment.INTERFACE) & 0xFFFF
        return f"{first & 0xFFFF}.{first >> 16}.{third:04}"

    def vport(self) -> bytes:
        """Return the context of the virtual port (NIC_VPORT)."""
        output = VPORT_OUT + NIC_VPORT.size
        return self.commands.run(Opcode.QUERY_NIC_VPORT_CONTEXT, output=output)[VPORT_OUT:]

    def key_byte(self) -> int:
        """Return the low byte of a new memory key, which peers cannot foresee."""
        return self._chance.getrandbits(8)

    def name_owner(self, owner: Resettable) -> int:
        """Return a user index that stands for a queue pair in completions from now on."""
        with self._lock:
            while True:
                self._next_index = (self._next_index + 1) % (_USER_INDICES - 1)
                if self._next_index and self._next_index not in self.owners:
                    break
            self.owners[self._next_index] = owner
            return self._next_index

    def _make_ready(self) -> None:
        """Wait until the firmware is ready, and reset a device that a driver left as it was."""
        bus = self.bus
        bus.enable_master()  # which a reset by others took away
        interface = bus.read32(0, init_segment.INTERFACE)
        if interface == ALL_ONES:
            raise self.health.loss()
        if interface >> 16 != init_segment.COMMAND_INTERFACE:
            raise HcaError(f"command interface revision {interface >> 16} is unknown")
        if bus.read32(0, init_segment.QUEUE_LOW) >> 8 & 7 != init_segment.NIC_DISABLED:
            bus.reset()
        deadline = time.monotonic() + READY_SECONDS
        while bus.read32(0, init_segment.INITIALIZING) & _INITIALIZING:
            if time.monotonic() > deadline:
                raise HcaError("the firmware does not become ready")
            time.sleep(0.001)

    def _lend_pages(self, when: int) -> None:
        """Lend the firmware the pages that it asks for (core/pagealloc.c: give_pages)."""
        answer = self.commands.run(Opcode.QUERY_PAGES, op_mod=when)
        count = QUERY_PAGES.get(answer, "count")
        if not count or count >> 31:
            return
        memory = self.bus.allocate(count * PAGE)
        self._lent.append(memory)
        data = MANAGE_PAGES_IN.pack(op_mod=PAGES_GIVEN, count=count)
        function = QUERY_PAGES.get(answer, "function_id")
        MANAGE_PAGES_IN.set(data, "function_id", function)
        self.commands.run(
            Opcode.MANAGE_PAGES, bytes(data) + page_list(memory.address, count * PAGE)
        )

    def _choose_capabilities(self) -> None:
        """Take all that there is; results of atomic operations in the order of this machine."""
        general = bytearray(self._query(CapGroup.GENERAL, current=False))
        for name, value in _GENERAL_CHOICES.items():
            caps.GENERAL.set(general, name, value)
        for bit in ("rc", "uc", "ud", "roce", "cqe_version"):
            if not caps.GENERAL.get(general, bit):
                raise HcaError(f"the device has not the capability {bit}")
        self._set(CapGroup.GENERAL, general)
        if caps.GENERAL.get(general, "atomic"):
            atomic = caps.ATOMIC.pack(request_endianness_mode=_HOST_ORDER)
            self._set(CapGroup.ATOMIC, atomic)

    def _query(self, group: CapGroup, *, current: bool) -> bytes:
        output = QUERY_CAP_OFFSET + GROUP_BYTES
        op_mod = group << 1 | current
        return self.commands.run(Opcode.QUERY_HCA_CAP, op_mod=op_mod, output=output)[
            QUERY_CAP_OFFSET:
        ]

    def _set(self, group: CapGroup, data: bytes | bytearray) -> None:
        self.commands.run(
            Opcode.SET_HCA_CAP, bytes(QUERY_CAP_OFFSET) + bytes(data), op_mod=group << 1
        )


def page_list(address: int, length: int) -> bytes:
    """Return the list of the pages of contiguous memory, as commands carry it."""
    return b"".join(page.to_bytes(8, "big") for page in range(address, address + length, PAGE))
