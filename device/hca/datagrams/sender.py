"""Datagrams out: UD queue pairs, and QP0 and QP1 whose software builds the headers itself."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.hca.pairs.costs import MESSAGE_COST
from bluebridge.device.hca.pairs.queue_pair import QueuePair
from bluebridge.device.hca.pairs.role import Role
from bluebridge.device.hca.pairs.unconnected_sender import UnconnectedSender
from bluebridge.device.hca.ports.datagram_headers import HeaderError, LostPacketError
from bluebridge.device.hca.ports.network_headers import build_network_header
from bluebridge.device.hca.rings.work_requests import (
    DATAGRAM,
    SEND_IMM,
    SendWqe,
    TooLongError,
    WqeError,
    parse_data,
)
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.wqe import CTRL_SIZE
from bluebridge.device.layout.net.roce import GSI_QPN, NO_GID, SMI_QPN

_SPECIAL_QPNS: Final = {Role.SMI: SMI_QPN, Role.GSI: GSI_QPN}
OWN_QKEY: Final = 1 << 31
MAX_ROUTES: Final = 64
AV_PD: Final = slice(1, 4)  # bytes of an address vector
MAX_PAYLOAD: Final = 4096
"""Bytes of a datagram: the largest path MTU."""


class DatagramSender(UnconnectedSender):
    """The send engine of UD queue pairs, QP0 and QP1."""

    __slots__ = ("_gids", "_macs", "_psn", "_routes")

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._psn = 0
        self._routes: dict[tuple[bytes, int, bytes], Route] = {}
        self._macs: object = None  # the tables that `_routes` were made with
        self._gids: object = None

    def _send(self, wqe: SendWqe, raw: bytes) -> None:
        qp = self._qp
        if qp.role is Role.UD:
            if len(raw) < CTRL_SIZE + DATAGRAM.size:
                raise WqeError("no datagram segment")
            payload = self._gather(wqe, raw, CTRL_SIZE + DATAGRAM.size, What.PAYLOAD)
            message = self._addressed(wqe, raw, payload)
        else:
            packet = self._gather(wqe, raw, CTRL_SIZE, What.MAD)
            try:
                message = qp.port.parse_packet(packet, qp.qkey)
            except LostPacketError as lost:
                qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {wqe.index}: {lost}", obj=qp.qpn)
                return
            # QP1's helper for RoCE v2 sends as itself: mlx4_ib_create_qp, roce_v2_gsi.
            if message.source_qpn not in (_SPECIAL_QPNS[qp.role], qp.qpn):
                raise HeaderError(f"{qp.role.name} sends as QP {message.source_qpn:#x}")
        qp.traffic.sent(1, len(message.payload))
        copies = qp.port.send(message)
        qp.spent += MESSAGE_COST * (1 + copies)

    def _gather(self, wqe: SendWqe, raw: bytes, position: int, what: What) -> bytes:
        """The bytes of the message whose segments begin at `position`."""
        qp = self._qp
        parse_data(wqe, raw, position)
        limit = min(qp.max_message, MAX_PAYLOAD) if qp.role is Role.UD else MAX_PAYLOAD
        if wqe.length > limit:
            raise TooLongError(f"a message of {wqe.length} bytes")
        return b"".join(qp.memory.gather(wqe.parts, note=True, what=what))

    def _addressed(self, wqe: SendWqe, raw: bytes, payload: bytes) -> Datagram:
        """A UD message by the address vector of its entry."""
        qp = self._qp
        av, target, qkey, vlan, dmac = DATAGRAM.unpack_from(raw, CTRL_SIZE)
        domain = int.from_bytes(av[AV_PD], "big")
        if domain != qp.pd:
            raise WqeError(f"an address vector of PD {domain}, not {qp.pd}")
        route = self._route(av, vlan, dmac)
        immediate = wqe.immediate if wqe.opcode == SEND_IMM else None
        self._psn = (self._psn + 1) & 0xFFFFFF
        return Datagram(
            route=route,
            source_qpn=qp.qpn,
            target_qpn=target & 0xFFFFFF,
            qkey=qp.qkey if qkey & OWN_QKEY else qkey,
            psn=self._psn,
            grh=_header(route, len(payload), immediate is not None),
            payload=payload,
            immediate=immediate,
            solicited=wqe.solicited,
            pkey=route.pkey,
        )

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
