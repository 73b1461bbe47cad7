"""Accesses of registers of bridges and DMA engines, by what the tables of a model say of them."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.ntb.uses import RegisterUse, Use, Uses
from bluebridge.host_tools.analyzer.devices.registry import model_of

_NO_USES = Uses({})
_OTHER = RegisterUse(Use.OTHER)


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """An access of a register; `value` has its bits where the register has them."""

    by: RegisterUse
    block: str
    index: int
    name: str
    value: int

    @property
    def use(self) -> Use:
        """The use of the register."""
        return self.by.use

    @property
    def words(self) -> str:
        """Name block and register, as the decoder writes them."""
        return f"{self.block}.{self.name}"

    @property
    def rung(self) -> int:
        """The doorbells of the peer that a write of a `Use.RING` register sets."""
        return (self.value & self.by.bits) << (self.index if self.by.bit_each else 0)


_NOTHING = RegisterAccess(_OTHER, "", 0, "", 0)


def uses_of(device: str) -> Uses:
    """Return the uses of a bridge's registers, none for other devices."""
    return model_of(device).uses or _NO_USES


def register_access(device: str, address: int, data: bytes) -> RegisterAccess:
    """Find the register that an access of `data` at an offset of BAR0 meets."""
    found = model_of(device).find(0, address)
    if found is None:
        return _NOTHING
    block, index, register = found
    value = int.from_bytes(data, "little") << 8 * (address - block.at(register.name, index))
    value &= (1 << register.width) - 1
    by = uses_of(device).registers.get((block.name, register.name), _OTHER)
    return RegisterAccess(by, block.name, index, register.name, value)


class Places:
    """Addresses on the bus between two bridges, where a model has one: of BARs and registers."""

    def __init__(self) -> None:
        self._bars: dict[tuple[str, int], int] = {}
        self._registers: dict[str, int] = {}

    def set(self, device: str, found: RegisterAccess) -> None:
        """Note a write of a `Use.BAR_BASE` or `Use.SHOWN_AT` register."""
        if found.use is Use.BAR_BASE:
            self._bars[device, found.by.number] = found.value
        else:
            self._registers[device] = found.value & ~0xF

    def shown_register(self, event: Event, peer: str) -> int | None:
        """Offset of the peer's register that an access of a window meets, None for its memory."""
        address = self._bars.get((event.device, event.bar), 0) + event.address
        offset = address - self._registers.get(peer, 0)
        return offset if 0 <= offset < uses_of(peer).registers_shown else None
