"""The transport headers of a datagram in a packet that software built: BTH, DETH, immediate data.

They are the same behind the network header of RoCE and behind that of InfiniBand.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.net.roce import BTH_SIZE, DETH_SIZE, BthOpcode
from bluebridge.device.packets.forms import BTH, DETH
from bluebridge.device.rdma.ports.network_headers import IMMEDIATE_SIZE
from bluebridge.device.rdma.work import WorkError

_LOW_24_BITS: Final = 0xFFFFFF


class HeaderError(WorkError):
    """The headers of a packet are not those of a datagram."""


class LostPacketError(Exception):
    """The first switch or adapter would discard the packet; its sender sees it as sent."""


class Transport(NamedTuple):
    """The words of BTH and DETH. `pad` are padding bytes, `end` is the offset of the payload."""

    source_qpn: int
    target_qpn: int
    qkey: int
    psn: int
    pkey: int
    immediate: int | None
    solicited: bool
    pad: int
    end: int


def parse_transport(packet: bytes, position: int, own_qkey: int) -> Transport:
    """Return the transport headers at `position` of a packet that holds at least BTH and DETH.

    `own_qkey` is taken for a Q_Key of zero, which software leaves to the adapter. Raises
    `HeaderError`.
    """
    opcode, flags, pkey, target, psn = BTH.unpack_from(packet, position)
    qkey, source = DETH.unpack_from(packet, position + BTH_SIZE)
    position += BTH_SIZE + DETH_SIZE
    immediate = None
    if opcode == BthOpcode.UD_SEND_ONLY_IMM:
        immediate = int.from_bytes(packet[position : position + IMMEDIATE_SIZE], "big")
        position += IMMEDIATE_SIZE
    elif opcode != BthOpcode.UD_SEND_ONLY:
        raise HeaderError(f"BTH opcode {opcode:#x}")
    return Transport(
        source_qpn=source & _LOW_24_BITS,
        target_qpn=target & _LOW_24_BITS,
        qkey=qkey or own_qkey,
        psn=psn & _LOW_24_BITS,
        pkey=pkey,
        immediate=immediate,
        solicited=bool(flags & 0x80),
        pad=flags >> 4 & 3,
        end=position,
    )


def datagram(transport: Transport, route: Route, grh: bytes, payload: bytes) -> Datagram:
    """Return the message of a packet whose headers were parsed; `grh` is its network header."""
    return Datagram(
        route=route,
        source_qpn=transport.source_qpn,
        target_qpn=transport.target_qpn,
        qkey=transport.qkey,
        psn=transport.psn,
        grh=grh,
        payload=payload,
        immediate=transport.immediate,
        solicited=transport.solicited,
        pkey=transport.pkey,
    )
