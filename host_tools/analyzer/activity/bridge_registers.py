"""What registers of bridges are for, in one set of words for all models."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.ntb import gen1, switchtec
from bluebridge.device.layout.ntb.models import GEN1, GEN4, SWITCHTEC
from bluebridge.host_tools.analyzer.bridges import FAMILIES

FIRST_MESSAGE = switchtec.DOORBELLS
"""Number of message slot 0 among the doorbells of a function, as in the table of vectors."""


class Use(Enum):
    """The use of a register."""

    RING = "rings doorbells of the peer"
    PENDING = "doorbells that the peer has rung"
    MASK = "which doorbells interrupt"
    VECTOR = "vector of a doorbell"
    SEND = "message to the peer"
    INBOX = "message of the peer, and whether it is new"
    OWN_SCRATCHPAD = "scratchpad"
    PEER_SCRATCHPAD = "scratchpad of the peer"
    PLACE = "where the bus between the bridges has something"
    OTHER = "other"


_SCRATCHPADS = {("SPAD", "spad"): Use.OWN_SCRATCHPAD, ("PEER_SPAD", "spad"): Use.PEER_SCRATCHPAD}
USES: dict[str, dict[tuple[str, str], Use]] = {
    GEN4.log_suffix: {
        **_SCRATCHPADS,
        ("DOORBELL", "ring"): Use.RING,
        ("NTB4", "int_status"): Use.PENDING,
        ("NTB4", "int_disable"): Use.MASK,
        ("INTVEC", "vector"): Use.VECTOR,
    },
    GEN1.log_suffix: {
        **_SCRATCHPADS,
        ("NTB1", "secondary_doorbell"): Use.RING,
        ("B2B", "b2b_doorbell"): Use.RING,
        ("NTB1", "doorbell"): Use.PENDING,
        ("NTB1", "doorbell_mask"): Use.MASK,
        ("NTB1", "primary2_base"): Use.PLACE,
        ("NTB1", "primary4_base"): Use.PLACE,
        ("NTB1", "register0_base"): Use.PLACE,
    },
    SWITCHTEC.log_suffix: {
        ("MESSAGING", "outbound_doorbell"): Use.RING,
        ("MESSAGING", "inbound_doorbell"): Use.PENDING,
        ("MESSAGING", "inbound_mask"): Use.MASK,
        **{("MESSAGING", f"outbound{n}"): Use.SEND for n in range(switchtec.MESSAGES)},
        **{("MESSAGING", f"inbound{n}"): Use.INBOX for n in range(switchtec.MESSAGES)},
        **{("MESSAGING", f"inbound{n}_status"): Use.INBOX for n in range(switchtec.MESSAGES)},
        ("VECTOR0", "vector"): Use.VECTOR,
        ("VECTOR1", "vector"): Use.VECTOR,
    },
}
"""By what follows the dot in a device's name, block and register."""


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """An access of a register; `value` has its bits where the register has them."""

    use: Use
    block: str
    index: int
    name: str
    value: int

    @property
    def words(self) -> str:
        """Block and register, as the decoder writes them."""
        return f"{self.block}.{self.name}"

    @property
    def slot(self) -> int:
        """The number in the name of a message register."""
        return int("".join(each for each in self.name if each.isdigit()) or 0)


_NOTHING = RegisterAccess(Use.OTHER, "", 0, "", 0)


def register_access(family: str, address: int, data: bytes) -> RegisterAccess:
    """The access of `data` at an offset of BAR0 of a bridge or a DMA engine."""
    for block in FAMILIES[family][0]:
        found = block.find(address)
        if found is not None:
            index, register = found
            start = block.base + index * block.stride + register.offset
            value = int.from_bytes(data, "little") << 8 * (address - start)
            value &= (1 << register.width) - 1
            use = USES.get(family, {}).get((block.name, register.name), Use.OTHER)
            return RegisterAccess(use, block.name, index, register.name, value)
    return _NOTHING


def bits_rung(found: RegisterAccess) -> int:
    """The doorbells of the peer that a write of a `Use.RING` register sets."""
    if found.block == "DOORBELL":
        return (found.value & 1) << found.index
    if found.block == "B2B":
        return found.value & ~(1 << gen1.LOST_DOORBELL)
    return found.value & (1 << FIRST_MESSAGE) - 1


class Places:
    """Where the bus between two bridges of the first generation has things, by function."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], int] = {}

    def set(self, device: str, found: RegisterAccess) -> None:
        """Software wrote a `Use.PLACE` register."""
        self._values[device, found.name] = found.value

    def shown_register(self, event: Event, peer: str) -> int | None:
        """Offset of the peer's register that an access of a window meets, None for its memory."""
        address = self._values.get((event.device, f"primary{event.bar}_base"), 0) + event.address
        offset = address - (self._values.get((peer, "register0_base"), 0) & ~0xF)
        return offset if 0 <= offset < gen1.REGISTERS_SHOWN else None
