"""The function behind the PCI endpoint, which routes accesses to the registers of the HCA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.pci import GATEWAY_ADDRESS, GATEWAY_DATA
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.board.registers import BoardRegisters
from bluebridge.device.mlx4.commands.register import CommandRegister, Health
from bluebridge.device.mlx4.rings.clock import clock
from bluebridge.device.mlx4.settings.config import HcaConfig
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.ports.port import Port

BAR0: Final = 0
BAR2: Final = 2
CLOCK_BYTES: Final = 8
WORD: Final = 4
RESET_BYTE: Final = bar0.RESET_OFFSET + 3
"""Offset of the byte with the lowest bit of the big-endian reset register."""


class Gateway:
    """The register of configuration space that is the word of BAR0 at the address before it.

    Tools use it where they may not map BAR0, as under Linux with IO_STRICT_DEVMEM.
    """

    def __init__(self, hca: Hca) -> None:
        self._hca = hca

    def refresh(self, data: bytearray) -> None:
        """Read BAR0 into the register; beyond its end are all ones."""
        at = _target(data)
        if at < bar0.BAR0_SIZE:
            data[GATEWAY_DATA : GATEWAY_DATA + WORD] = self._hca.bar_read(BAR0, at, WORD)[::-1]
        else:
            data[GATEWAY_DATA : GATEWAY_DATA + WORD] = b"\xff" * WORD

    def stored(self, data: bytearray) -> None:
        """Write the register's value to BAR0; nothing happens beyond its end."""
        at = _target(data)
        if at < bar0.BAR0_SIZE:
            self._hca.bar_write(BAR0, at, bytes(data[GATEWAY_DATA : GATEWAY_DATA + WORD])[::-1])


def _target(data: bytearray) -> int:
    return int.from_bytes(data[GATEWAY_ADDRESS : GATEWAY_ADDRESS + WORD], "little") & -WORD


class Hca:
    """One ConnectX-3: a `Model` for its PCI endpoint, with one port for each of `fabrics`."""

    def __init__(self, bus: HostBus, fabrics: Sequence[Fabric], config: HcaConfig) -> None:
        self._bus = bus
        self.adapter = Adapter(bus, fabrics, config)
        self.health = Health()
        self.commands = CommandRegister(self.adapter, self.health)
        self.board = BoardRegisters(config)
        self._uar = self.adapter.uar

    def close(self) -> None:
        """Leave the fabrics for good."""
        self.adapter.leave()

    # -- Model --------------------------------------------------------------------------------

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Return bytes of registers in BAR0; all else reads as zero.

        Zero is also right for the ownership register: free, taken by the reader.
        """
        if bar == BAR0:
            if self.commands.covers(offset, length):
                return self.commands.read(offset - bar0.HCR_BASE, length)
            place = offset - bar0.CLOCK_OFFSET
            if 0 <= place <= CLOCK_BYTES - length:
                return clock().to_bytes(CLOCK_BYTES, "big")[place : place + length]
            found = self.board.read(offset, length)
            return self.health.read(offset, length) if found is None else found
        if bar == BAR2:
            self._uar.read(offset)
        return bytes(length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write commands, the reset register or the board's (BAR0), or doorbells (BAR2).

        After an internal error there is no INIT_HCA in force, so doorbells have no effect either.
        """
        if bar == BAR2:
            self._uar.write(offset, data)
        elif bar == BAR0 and self.commands.covers(offset, len(data)):
            self.commands.write(offset - bar0.HCR_BASE, data)
        elif bar == BAR0 and _resets(offset, data):
            self._bus.tell(Fact.RESET, cause="software")
            self.reset()
        elif bar == BAR0:
            self.board.write(offset, data)

    def reset(self) -> None:
        """Return to the state after power-on, without objects or mappings; configuration stays."""
        self.adapter.reset()
        self.commands.reset()
        self.health.reset()
        self.board.reset()

    @property
    def ports(self) -> Sequence[Port]:
        """The ports, in the order of their numbers."""
        return self.adapter.ports

    @property
    def initialised(self) -> bool:
        """Whether INIT_HCA is in force."""
        return self.adapter.parameters.initialised

    @property
    def faults(self) -> ArmedFaults:
        """The faults by name that are armed."""
        return self.adapter.faults

    @property
    def failed(self) -> bool:
        """True after an internal error stopped the HCA, until a reset."""
        return self.health.failed

    def fail(self, reason: str) -> None:
        """Stop the HCA at once with an internal error, whose `reason` the error buffer shows.

        Linux `mlx4/catas.c: poll_catas` looks every five seconds and resets the device.
        """
        self._bus.tell(Fact.INTERNAL_ERROR, reason=reason)
        self.adapter.clear()
        self.health.fail(reason)


def _resets(offset: int, data: bytes) -> bool:
    """Return True if a store sets bit 0 of the reset register.

    Linux stores 1, iPXE also the bit of the byte at the other end (hermon.h: HERMON_RESET_MAGIC).
    """
    at = RESET_BYTE - offset
    return 0 <= at < len(data) and bool(data[at] & bar0.RESET_VALUE)
