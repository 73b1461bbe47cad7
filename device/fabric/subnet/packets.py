"""Management packets that nodes of the fabric send themselves, and answers longer than a MAD.

Such an answer is sent in segments, in windows that are acknowledged (RMPP): InfiniBand vol. 1,
13.6; the receiver is Linux `core/mad_rmpp.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.ib.mad import NOTICE, SMP, Method, MgmtClass, SmpAttribute
from bluebridge.device.layout.ib.sa import (
    RMPP_OVERHEAD,
    SA_DATA_SIZE,
    SA_HEADER_SIZE,
    SA_MAD,
    RmppFlag,
    RmppType,
)
from bluebridge.device.layout.net.roce import (
    DEFAULT_PKEY,
    GRH_NEXT_BTH,
    GSI_QKEY,
    GSI_QPN,
    NO_GID,
    SMI_QPN,
)

_GRH = Struct(">IHBB16s16s")
_HEADERS_AND_MAD = 12 + 8 + 256 + 4  # BTH, DETH, MAD, ICRC

MAX_TRANSFERS = 64
"""Most transfers under way at once; a new one ends the oldest."""

Key = tuple[bytes, int, int]
"""The LID and queue pair of the receiver, and the transaction id."""


def smp_to(source: bytes, target: bytes, smp: bytes) -> Datagram:
    """Return a subnet management packet between two LIDs."""
    route = Route(source, target, NO_GID, NO_GID)
    return Datagram(route, SMI_QPN, SMI_QPN, 0, 0, b"", smp)


def trap(lid: int, manager: int, tid: int, details: Mapping[int, bytes], **notice: int) -> Datagram:
    """Return a trap from one LID to the subnet manager's; `details` by their offsets in it."""
    data = NOTICE.pack(generic=1, issuer_lid=lid, **notice)
    for offset, value in details.items():
        data[offset : offset + len(value)] = value
    smp = SMP.pack(
        base_version=1, mgmt_class=int(MgmtClass.SUBN_LID), class_version=1,
        method=int(Method.TRAP), tid=tid, attr_id=int(SmpAttribute.NOTICE), data=bytes(data),
    )  # fmt: skip
    return smp_to(lid_bytes(lid), lid_bytes(manager), bytes(smp))


def answer_to(request: Datagram, mad: bytes) -> Datagram:
    """Return a MAD that goes back to the sender of `request`, to its queue pair."""
    asked = request.route
    route = Route(
        smac=asked.dmac, dmac=asked.smac, sgid=asked.dgid, dgid=asked.sgid,
        hop_limit=asked.hop_limit, service_level=asked.service_level, pkey=DEFAULT_PKEY,
    )  # fmt: skip
    qkey = GSI_QKEY if request.target_qpn == GSI_QPN else 0
    grh = b""
    if request.grh:
        hops = max(route.hop_limit, 1)
        grh = _GRH.pack(6 << 28, _HEADERS_AND_MAD, GRH_NEXT_BTH, hops, route.sgid, route.dgid)
    return Datagram(route, request.target_qpn, request.source_qpn, qkey, 0, grh, mad)


@dataclass(slots=True)
class _Transfer:
    request: Datagram
    segments: list[bytes]
    sent: int = 0


class RmppSender:
    """The sender of tables in segments; `send` gets a request and a MAD that answers it."""

    def __init__(self, send: Callable[[Datagram, bytes], None]) -> None:
        self._send = send
        self._transfers: dict[Key, _Transfer] = {}

    def start(self, request: Datagram, header: bytes, data: bytes) -> None:
        """Answer `request` with `data`; the first segment is sent now, others when asked for."""
        key = _key(request)
        self._transfers.pop(key, None)
        transfer = _Transfer(request, segments_of(header, data))
        if len(transfer.segments) > 1:
            while len(self._transfers) >= MAX_TRANSFERS:
                del self._transfers[next(iter(self._transfers))]
            self._transfers[key] = transfer
        self._send(request, transfer.segments[0])
        transfer.sent = 1

    def control(self, message: Datagram) -> None:
        """Process an ACK, STOP or ABORT of a receiver."""
        key = _key(message)
        transfer = self._transfers.get(key)
        if transfer is None:
            return
        get = SA_MAD.get
        last = get(message.payload, "segment")
        if get(message.payload, "rmpp_type") != RmppType.ACK or last >= len(transfer.segments):
            del self._transfers[key]
            return
        window = min(get(message.payload, "length_or_window"), len(transfer.segments))
        for number in range(min(last, transfer.sent) + 1, window + 1):
            self._send(transfer.request, transfer.segments[number - 1])
        transfer.sent = max(transfer.sent, window)


def _key(message: Datagram) -> Key:
    return message.route.smac, message.source_qpn, SA_MAD.get(message.payload, "tid")


def segments_of(header: bytes, data: bytes) -> list[bytes]:
    """Return the MADs of a transfer; `header` is that of the SA, without anything of RMPP in it."""
    pieces = [data[at : at + SA_DATA_SIZE] for at in range(0, len(data), SA_DATA_SIZE)] or [b""]
    segments = []
    for number, piece in enumerate(pieces, 1):
        flags = RmppFlag.ACTIVE
        length = 0
        if number == 1:
            flags |= RmppFlag.FIRST
            length = len(data) + RMPP_OVERHEAD * len(pieces)
        if number == len(pieces):
            flags |= RmppFlag.LAST
            length = len(piece) + RMPP_OVERHEAD
        segment = bytearray(header[:SA_HEADER_SIZE])
        for name, value in {
            "rmpp_version": 1,
            "rmpp_type": int(RmppType.DATA),
            "rmpp_flags": int(flags),
            "segment": number,
            "length_or_window": length,
        }.items():
            SA_MAD.set(segment, name, value)
        segments.append(bytes(segment) + piece.ljust(SA_DATA_SIZE, b"\0"))
    return segments
