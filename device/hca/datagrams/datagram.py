"""Unreliable datagrams: UD queue pairs, and QP1 whose software builds the headers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.fabric.addresses import Link, is_group
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.hca.memory.regions import AccessError
from bluebridge.device.hca.memory.scatter_gather import gather, scatter_runs
from bluebridge.device.hca.memory.transfer import copy_views, note_runs
from bluebridge.device.hca.pairs.costs import MESSAGE_COST
from bluebridge.device.hca.pairs.error_state import enter_error
from bluebridge.device.hca.pairs.role import DATAGRAMS, Role
from bluebridge.device.hca.pairs.unconnected_sender import UnconnectedSender
from bluebridge.device.hca.ports.network_headers import build_network_header
from bluebridge.device.hca.rings.completions import complete_datagram, fail_receive
from bluebridge.device.hca.rings.work_requests import (
    DATAGRAM,
    SEND_IMM,
    SendWqe,
    TooLongError,
    WqeError,
    parse_data,
)
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.contexts import QpState
from bluebridge.device.layout.mlx4.cqe import RecvOpcode, Syndrome
from bluebridge.device.layout.mlx4.wqe import CTRL_SIZE
from bluebridge.device.layout.net.roce import GRH_SIZE, GSI_QKEY, GSI_QPN
from bluebridge.device.pci.bus import DmaError

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca
    from bluebridge.device.hca.ports.port import Port
    from bluebridge.device.hca.queue_pairs import QueuePair

OWN_QKEY = 1 << 31
SMI_QPN = 0
MULTICAST_QPN = 0xFFFFFF
NO_GRH = bytes(GRH_SIZE)
NO_GID = bytes(16)
MAX_MAD = 256
MAX_ROUTES = 64
AV_PD = slice(1, 4)  # bytes of an address vector
MAX_PAYLOAD = 4096
_RECEIVING = (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQER)


class DatagramSender(UnconnectedSender):
    """The send engine of UD queue pairs and of QP1."""

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
            message = qp.port.parse_packet(packet, qp.qkey)
        qp.traffic.sent(1, len(message.payload))
        qp.spent += MESSAGE_COST * (1 + qp.port.send(message))

    def _gather(self, wqe: SendWqe, raw: bytes, position: int, what: What) -> bytes:
        """The bytes of the message whose segments begin at `position`."""
        qp = self._qp
        parse_data(wqe, raw, position)
        limit = min(qp.max_message, MAX_PAYLOAD) if qp.role is Role.UD else MAX_PAYLOAD
        if wqe.length > limit:
            raise TooLongError(f"a message of {wqe.length} bytes")
        return b"".join(gather(qp, wqe.parts, note=True, what=what))

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
        if port.link is not Link.ETHERNET:
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


def receive_datagram(hca: Hca, port: Port, message: Datagram) -> int:
    """A datagram from the fabric: for QP1, a UD queue pair, or the members of a group.

    Returns how many members the group has, 0 if it is for one queue pair.
    """
    if is_group(message.route.dmac):
        own = message.route.smac in port.mac_addresses
        members = hca.multicast.members(message.route.dgid)
        for qpn, refuses_own in members:
            if not (own and refuses_own and qpn == message.source_qpn):
                _deliver(hca, port, qpn, message)
        return len(members)
    special = {SMI_QPN: port.smi_qpn, GSI_QPN: port.gsi_qpn}
    _deliver(hca, port, special.get(message.target_qpn, message.target_qpn), message)
    return 0


def _deliver(hca: Hca, port: Port, qpn: int, message: Datagram) -> None:
    qp = hca.qps.get(qpn)
    if qp is None or qp.role not in DATAGRAMS or qp.state not in _RECEIVING:
        return
    if qp.port is not port:
        return
    mad = qp.role is not Role.UD
    if not _admits_key(qp, message) or len(message.payload) > (MAX_MAD if mad else MAX_PAYLOAD):
        hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: datagram dropped, Q_Key or length", obj=qp.qpn)
        return
    pkey_index = port.pkey_index(qp, message)
    if pkey_index is None:
        hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: datagram dropped, P_Key", obj=qp.qpn)
        return
    queue = qp.receives
    try:
        wqe = queue.take() if queue is not None else None
    except DmaError:
        wqe = None
    if wqe is None:
        hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: datagram dropped, no receive", obj=qp.qpn)
        return
    length = GRH_SIZE + len(message.payload)
    if length > sum(sge[2] for sge in wqe.sges):
        fail_receive(qp, wqe.index, Syndrome.LOCAL_LENGTH_ERR)
        enter_error(qp)
        return
    try:
        runs = scatter_runs(qp, wqe.sges, length, wqe.pd)
        views = hca.bus.views(runs)
    except (AccessError, DmaError):
        fail_receive(qp, wqe.index, Syndrome.LOCAL_PROT_ERR)
        enter_error(qp)
        return
    copy_views(views, [memoryview(message.grh or NO_GRH), memoryview(message.payload)])
    qp.traffic.received(1, len(message.payload))
    what = What.MAD if mad else What.PAYLOAD
    note_runs(hca.bus, Kind.DMA_WRITE, runs, views, what, qp.qpn)
    _complete(qp, wqe.index, length, message, pkey_index)


def _admits_key(qp: QueuePair, message: Datagram) -> bool:
    """QP0 has no Q_Key, QP1 a well-known one."""
    if qp.role is Role.SMI:
        return True
    return message.qkey == (GSI_QKEY if qp.role is Role.GSI else qp.qkey)


def _complete(qp: QueuePair, index: int, length: int, message: Datagram, pkey_index: int) -> None:
    """The completion names the sender: software answers to what it reads here."""
    source, sl_vid = qp.port.sender_of(message)
    immediate = message.immediate
    complete_datagram(
        qp,
        index,
        RecvOpcode.SEND if immediate is None else RecvOpcode.SEND_WITH_IMM,
        length,
        pkey_index if immediate is None else immediate,
        source,
        message.route.smac,
        sl_vid,
        message.solicited,
    )
