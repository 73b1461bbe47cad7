"""Packets of work requests: how many bytes a message has of which each packet brings a part."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.net.roce import PSN_MASK, SERVICE_MASK, UNRELIABLE_SERVICE, BthOpcode
from bluebridge.device.packets.reader import WirePacket
from bluebridge.host_tools.analyzer.packets import DATAGRAMS, syndrome_of
from bluebridge.host_tools.analyzer.transaction import Transfer

_HALF: Final = 1 << 23
_ATOMIC_BYTES: Final = 8
_OPEN: Final = frozenset((
    BthOpcode.RC_SEND_FIRST, BthOpcode.RC_SEND_MIDDLE, BthOpcode.RC_WRITE_FIRST,
    BthOpcode.RC_WRITE_MIDDLE,
))  # fmt: skip
"""Opcodes behind which a message goes on."""
_LAST_DATA: Final = (
    BthOpcode.RC_READ_RESPONSE_LAST,
    BthOpcode.RC_READ_RESPONSE_ONLY,
    BthOpcode.RC_ATOMIC_ACK,
)


def sent(transfer: Transfer, packet: WirePacket) -> bool:
    """Take a packet of a work request that left; return True if nobody will answer the request.

    What is sent again adds no bytes.
    """
    headers, code = packet.headers(), packet.opcode & ~SERVICE_MASK
    if transfer.psn is None:
        transfer.psn, transfer.peer_qpn = packet.psn, packet.target_qpn
        if "RETH" in headers:
            transfer.length = headers["RETH"]["length"]
        elif "AtomicETH" in headers:
            transfer.length = _ATOMIC_BYTES
    known = transfer.last_psn
    if known is None or _later(packet.psn, known) > 0:
        transfer.last_psn = packet.psn
        if code <= BthOpcode.RC_SEND_ONLY_IMM or code >= BthOpcode.RC_SEND_LAST_INV:
            transfer.length += packet.end - packet.start
    transfer.whole = transfer.whole or code not in _OPEN
    unreliable = packet.opcode & SERVICE_MASK == UNRELIABLE_SERVICE
    return transfer.whole and (unreliable or packet.opcode in DATAGRAMS)


def ends(transfer: Transfer, packet: WirePacket) -> bool:
    """Return True for an answer behind which a work request is over."""
    if packet.opcode & ~SERVICE_MASK in _LAST_DATA:
        return True
    last = transfer.last_psn
    if last is None or not transfer.whole or syndrome_of(packet):
        return False
    return _later(packet.psn, last) >= 0


def _later(psn: int, than: int) -> int:
    return ((psn - than + _HALF) & PSN_MASK) - _HALF
