"""A packet as a checker sees it, and arithmetic of PSNs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.net.roce import ANSWERS, PSN_MASK, BthOpcode, Syndrome
from bluebridge.device.packets.transport import TransportPacket

_HALF: Final = 1 << 23
FIRSTS: Final = frozenset((BthOpcode.RC_SEND_FIRST, BthOpcode.RC_WRITE_FIRST))
MIDDLES: Final = frozenset((BthOpcode.RC_SEND_MIDDLE, BthOpcode.RC_WRITE_MIDDLE))
WRITES: Final = frozenset(range(BthOpcode.RC_WRITE_FIRST, BthOpcode.RC_WRITE_ONLY_IMM + 1))
LASTS: Final = frozenset(
    (
        BthOpcode.RC_SEND_LAST,
        BthOpcode.RC_SEND_LAST_IMM,
        BthOpcode.RC_SEND_LAST_INV,
        BthOpcode.RC_WRITE_LAST,
        BthOpcode.RC_WRITE_LAST_IMM,
    )
)
ATOMICS: Final = frozenset((BthOpcode.RC_COMPARE_SWAP, BthOpcode.RC_FETCH_ADD))
TAKES_RECEIVE: Final = frozenset(
    (
        *range(BthOpcode.RC_SEND_FIRST, BthOpcode.RC_SEND_ONLY_IMM + 1),
        BthOpcode.RC_SEND_LAST_INV,
        BthOpcode.RC_SEND_ONLY_INV,
        BthOpcode.RC_WRITE_LAST_IMM,
        BthOpcode.RC_WRITE_ONLY_IMM,
    )
)
RESPONSES: Final = frozenset(
    range(BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_READ_RESPONSE_ONLY + 1)
)


@dataclass(slots=True)
class Seen:
    """Packet `number` of a capture, at `time` in ns, for queue pair `qpn` at GID `target`.

    `marked` says that a switch met congestion, `migrated` is MigReq.
    """

    number: int
    time: int
    source: bytes
    target: bytes
    qpn: int
    packet: TransportPacket
    marked: bool = False
    migrated: bool = True

    @property
    def is_answer(self) -> bool:
        """Return True if a responder sent it."""
        return self.packet.opcode in ANSWERS

    @property
    def is_nak(self) -> bool:
        """Return True for a sequence NAK."""
        return self.packet.opcode == BthOpcode.RC_ACK and self.packet.syndrome == Syndrome.NAK_PSN


def later(psn: int, than: int) -> int:
    """Return how many packets `psn` lies after `than`; negative before it (24 bits wrap)."""
    return (psn - than + _HALF & PSN_MASK) - _HALF
