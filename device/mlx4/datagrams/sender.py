"""Datagrams out: UD queue pairs, and QP0 and QP1 whose software builds the headers itself."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Final

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.wqe import CTRL_SIZE
from bluebridge.device.layout.net.ipoib import HEADER_SIZE
from bluebridge.device.layout.net.roce import GSI_QPN, NO_GID, SMI_QPN
from bluebridge.device.mlx4.ethernet.offloads import CHECKSUM_FLAGS, with_checksums
from bluebridge.device.mlx4.ethernet.segmentation import LargeSendHeaders
from bluebridge.device.mlx4.pairs.costs import MESSAGE_COST
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.pairs.role import Role
from bluebridge.device.mlx4.pairs.unconnected_sender import UnconnectedSender
from bluebridge.device.mlx4.ports.datagram_headers import HeaderError, LostPacketError
from bluebridge.device.mlx4.ports.network_headers import build_network_header
from bluebridge.device.mlx4.rings.send_queue import COST_LIMIT
from bluebridge.device.mlx4.rings.work_requests import (
    DATAGRAM,
    LSO,
    SEND,
    SEND_IMM,
    SendWqe,
    TooLongError,
    WqeError,
    parse_data,
    parse_large_send,
)
from bluebridge.device.mlx4.settings.capabilities import MAX_GSO_LOG

_SPECIAL_QPNS: Final = {Role.SMI: SMI_QPN, Role.GSI: GSI_QPN}
OWN_QKEY: Final = 1 << 31
MAX_ROUTES: Final = 64
AV_PD: Final = slice(1, 4)  # bytes of an address vector
MAX_PAYLOAD: Final = 4096
"""Bytes of a datagram: the largest path MTU."""
MAX_LARGE_SEND: Final = 1 << MAX_GSO_LOG
MAX_PIECES: Final = 512
"""Datagrams of one large send."""
_DATA_OFFSET: Final = CTRL_SIZE + DATAGRAM.size


class DatagramSender(UnconnectedSender):
    """The send engine of UD queue pairs, QP0 and QP1.

    `_rest` are datagrams of a large send that wait for the next turn: its share of time was over.
    They own their bytes, so the entry is complete before they left.
    """

    opcodes: ClassVar[frozenset[int]] = frozenset((SEND, SEND_IMM, LSO))
    __slots__ = ("_gids", "_macs", "_psn", "_rest", "_routes")

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._psn = 0
        self._rest: deque[Datagram] = deque()
        self._routes: dict[tuple[bytes, int, bytes], Route] = {}
        self._macs: object = None  # the tables that `_routes` were made with
        self._gids: object = None

    def _send(self, wqe: SendWqe, raw: bytes) -> None:
        qp = self._qp
        if qp.role is Role.UD:
            if len(raw) < _DATA_OFFSET:
                raise WqeError("no datagram segment")
            if wqe.opcode == LSO:
                self._send_large(wqe, raw)
                return
            payload = self._gather(wqe, raw, _DATA_OFFSET, What.PAYLOAD)
            good = False
            if wqe.flags & CHECKSUM_FLAGS:
                payload, good = with_checksums(payload, wqe.flags, HEADER_SIZE)
            (message,) = self._addressed(wqe, raw, [payload], good)
        else:
            if wqe.opcode == LSO:
                raise WqeError("a large send of management datagrams")
            packet = self._gather(wqe, raw, CTRL_SIZE, What.MAD)
            try:
                message = qp.port.parse_packet(packet, qp.qkey)
            except LostPacketError as lost:
                qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {wqe.index}: {lost}", obj=qp.qpn)
                return
            # QP1's helper for RoCE v2 sends as itself: mlx4_ib_create_qp, roce_v2_gsi.
            if message.source_qpn not in (_SPECIAL_QPNS[qp.role], qp.qpn):
                raise HeaderError(f"{qp.role.name} sends as QP {message.source_qpn:#x}")
        self._hand_over(message)

    def _hand_over(self, message: Datagram) -> None:
        qp = self._qp
        qp.traffic.sent(1, len(message.payload))
        copies = qp.port.send(message)
        qp.spent += MESSAGE_COST * (1 + copies)

    def _send_large(self, wqe: SendWqe, raw: bytes) -> None:
        """A TCP segment of IPoIB, cut into datagrams with headers and checksums of their own."""
        qp = self._qp
        mss, header = parse_large_send(wqe, raw, _DATA_OFFSET, MAX_PAYLOAD)
        if wqe.length > min(qp.max_message, MAX_LARGE_SEND) or wqe.length > mss * MAX_PIECES:
            raise TooLongError(f"a large send of {wqe.length} bytes, {mss} in each datagram")
        payload = b"".join(qp.memory.gather(wqe.parts, note=True, what=What.PAYLOAD))
        packets = LargeSendHeaders(header, ipoib=True).cut(payload, mss)
        self._rest.extend(self._addressed(wqe, raw, packets, True))
        self._send_rest()
        wqe.length += len(header)

    def _send_rest(self) -> None:
        """Send datagrams of a large send, as many as the queue's share of time allows."""
        qp, rest = self._qp, self._rest
        while rest and qp.spent < COST_LIMIT:
            self._hand_over(rest.popleft())

    def blocked(self) -> bool:
        """Whether a large send is not over; the queue runs again after it."""
        self._send_rest()
        return bool(self._rest)

    def abort(self) -> None:
        """2ERR: what is left of a large send is dropped."""
        self._rest.clear()

    def stop(self) -> None:
        """2RST: what is left of a large send is forgotten."""
        self._rest.clear()

    def _gather(self, wqe: SendWqe, raw: bytes, position: int, what: What) -> bytes:
        """The bytes of the message whose segments begin at `position`."""
        qp = self._qp
        parse_data(wqe, raw, position)
        limit = min(qp.max_message, MAX_PAYLOAD) if qp.role is Role.UD else MAX_PAYLOAD
        if wqe.length > limit:
            raise TooLongError(f"a message of {wqe.length} bytes")
        return b"".join(qp.memory.gather(wqe.parts, note=True, what=what))

    def _addressed(
        self, wqe: SendWqe, raw: bytes, payloads: list[bytes], good: bool
    ) -> list[Datagram]:
        """UD messages by the address vector of their entry."""
        qp = self._qp
        av, target, qkey, vlan, dmac = DATAGRAM.unpack_from(raw, CTRL_SIZE)
        domain = int.from_bytes(av[AV_PD], "big")
        if domain != qp.pd:
            raise WqeError(f"an address vector of PD {domain}, not {qp.pd}")
        route = self._route(av, vlan, dmac)
        immediate = wqe.immediate if wqe.opcode == SEND_IMM else None
        first = self._psn + 1
        self._psn = self._psn + len(payloads) & 0xFFFFFF
        return [
            Datagram(
                route=route,
                source_qpn=qp.qpn,
                target_qpn=target & 0xFFFFFF,
                qkey=qp.qkey if qkey & OWN_QKEY else qkey,
                psn=psn & 0xFFFFFF,
                grh=_header(route, len(payload), immediate is not None),
                payload=payload,
                immediate=immediate,
                solicited=wqe.solicited,
                pkey=route.pkey,
                good=good,
            )
            for psn, payload in enumerate(payloads, first)
        ]

    def _route(self, av: bytes, vlan: int, dmac: bytes) -> Route:
        """The way an address vector describes; on Ethernet it is worked out once."""
        qp = self._qp
        port, tables, routes = qp.port, qp.port.tables, self._routes
        if port.link is not LinkLayer.ETHERNET:
            return port.datagram_route(qp.context, av, vlan, dmac)
        if tables.macs is not self._macs or tables.gids is not self._gids:
            routes.clear()
            self._macs, self._gids = tables.macs, tables.gids
        route = routes.get((av, vlan, dmac))
        if route is None:
            if len(routes) >= MAX_ROUTES:
                routes.clear()
            route = port.datagram_route(qp.context, av, vlan, dmac)
            routes[av, vlan, dmac] = route
        return route


def _header(route: Route, payload: int, immediate: bool) -> bytes:
    """On InfiniBand there is a GRH only where the address asks for it."""
    return b"" if route.dgid == NO_GID else build_network_header(route, payload, immediate)
