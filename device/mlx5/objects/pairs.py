"""Queue pairs of one adapter as the contexts (QPC) of commands describe them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.queue_pairs import (
    LOG_RECEIVE_UNIT,
    QP_CONTEXT,
    QP_IN,
    QPC,
    QpState,
    Receives,
    Service,
)
from bluebridge.device.layout.mlx5.wqe import BLOCK_BYTES, DATAGRAM, SendOpcode
from bluebridge.device.layout.net.roce import GSI_QPN
from bluebridge.device.mlx5.objects.key_updates import Change, KeyUpdater, read_change
from bluebridge.device.mlx5.rings.message_requests import read_datagram, read_message, read_xrc
from bluebridge.device.mlx5.rings.pair_completions import PairCompletions
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.connected.packet_receiver import PacketReceiver
from bluebridge.device.rdma.connected.packet_sender import PacketSender
from bluebridge.device.rdma.connected.part_sender import PartSender
from bluebridge.device.rdma.connected.receiver import PartReceiver
from bluebridge.device.rdma.datagrams.sender import DatagramSender
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.costs import ENTRY_COST
from bluebridge.device.rdma.pairs.engines import ReceiveEngine
from bluebridge.device.rdma.pairs.queue_pair import DEFAULT_LOG_MESSAGE, QueuePair
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueues
from bluebridge.device.rdma.ports.counters import Diagnostics
from bluebridge.device.rdma.ports.port_tables import Path
from bluebridge.device.rdma.vocabulary import PairState, Role
from bluebridge.device.rdma.work import SendWork
from bluebridge.device.rings.queue_buffer import QueueBuffer
from bluebridge.device.rings.receive_ring import ReceiveRing

ROLES: Final = {
    int(Service.RC): Role.RC,
    int(Service.UC): Role.UC,
    int(Service.UD): Role.UD,
    int(Service.XRC): Role.XRC,
    int(Service.QP1): Role.GSI,
    # It changes keys and speaks with nobody: a connection whose peer is never named.
    int(Service.UMR): Role.RC,
}
"""The roles of queue pairs by their service; others are not offered."""
_UMR: Final = bytes((SendOpcode.UMR,))
NO_DOMAIN: Final = -1
"""The XRC domain of a queue pair that names none; that of SRQs which are not of XRC is 0."""
STATES: Final = {state: QpState[state.name] for state in PairState}


class CardPair(QueuePair):
    """A queue pair outside of RST; `context` is the QPC as merged so far."""

    def __init__(
        self,
        around: Surroundings,
        number: int,
        context: bytearray,
        srqs: SharedReceiveQueues,
        troubles: Callable[[int], Diagnostics],
        failed: Callable[[QueuePair], None],
        completions: PairCompletions,
    ) -> None:
        pd, reserved = QPC.get(context, "pd"), bool(QPC.get(context, "reserved_lkey"))
        super().__init__(
            number,
            ROLES[QPC.get(context, "service")],
            bus=around.bus,
            regions=around.regions,
            memory=LocalMemory(around.bus, around.regions, pd, number, reserved_lkey=reserved),
            completions=completions,
            srqs=srqs,
            port=around.port,
            traffic=around.traffic,
            failed=failed,
        )
        self.context = context
        self._troubles = troubles
        if self.role is Role.GSI:
            self.shown_number = GSI_QPN
        self.load()

    def load(self) -> None:
        """Set the attributes from the context, after each transition."""
        get, context = QPC.get, self.context
        self.take_context(QPC, context)
        self.max_message = 1 << (get(context, "log_message") or DEFAULT_LOG_MESSAGE)
        self.xrcd = get(context, "xrcd") or NO_DOMAIN
        shared = get(context, "rq_type") == Receives.SHARED and self.role is not Role.XRC
        self.srqn = get(context, "srqn") if shared else None
        self.fast_register = bool(get(context, "fast_register"))
        self.count_troubles(self._troubles(get(context, "counter_set")))
        self.path = path_of(QPC, context, "pri_")
        self.reroute()

    def read_path(self, address: bytes) -> Path:
        """Return the path in the address vector of an entry."""
        return path_of(DATAGRAM, address)

    def query(self) -> bytes:
        """Return the context with the live counters (QUERY_QP)."""
        context = bytearray(self.context)
        QPC.set(context, "state", STATES[self.state])
        QPC.set(context, "next_recv_psn", self.responder.psn)
        QPC.set(context, "next_send_psn", self.engine.next_psn)
        if isinstance(self.sq, SendRing):
            QPC.set(context, "sq_counter", self.sq.index & 0xFFFF)
            QPC.set(context, "sq_posted", self.sq.head & 0xFFFF)
        if isinstance(self.rq, ReceiveRing):
            QPC.set(context, "rq_counter", self.rq.index)
        return bytes(context)


class UpdatingReader:
    """The reader of the send entries of a connected pair, which may change keys.

    `read` reads all other entries. A pair of UMR changes keys of all protection domains.
    """

    def __init__(
        self, pair: CardPair, updater: KeyUpdater, read: Callable[[bytes, int], SendWork]
    ) -> None:
        self._pair = pair
        self._updater = updater
        self._read = read
        everywhere = QPC.get(pair.context, "service") == Service.UMR
        self._pd = None if everywhere else pair.pd
        self._trusted = everywhere or pair.fast_register

    def read(self, raw: bytes, index: int) -> SendWork:
        """Return the work request of an entry; raises `WorkError`."""
        if raw[3:4] != _UMR:
            return self._read(raw, index)
        work, change = read_change(raw, index)
        work.update = partial(self._change, change)
        return work

    def _change(self, change: Change) -> None:
        pair = self._pair
        entries = self._updater.apply(
            change, pair.memory, self._pd, pair.qpn, trusted=self._trusted
        )
        pair.spent += ENTRY_COST * entries


class MadePair:
    """A queue pair from CREATE_QP to DESTROY_QP; outside of RST there is a `CardPair`, too."""

    def __init__(self, around: Surroundings, data: bytes) -> None:
        """Check what CREATE_QP brought and find the rings; raises `Refused`."""
        self._around = around
        self.context = data[QP_CONTEXT : QP_CONTEXT + QPC.size]
        get, context = QPC.get, self.context
        service = get(context, "service")
        if service not in ROLES:
            raise Refused(Status.BAD_PARAM, f"queue pairs of service {service}")
        if get(context, "signature"):
            raise Refused(Status.BAD_PARAM, "entries with signatures are not offered")
        kind = get(context, "rq_type")
        if kind not in (Receives.OWN, Receives.SHARED, Receives.NONE):
            raise Refused(Status.BAD_PARAM, f"receives of kind {kind}")
        self.role = ROLES[service]
        self.log_sq_size = get(context, "log_sq_size")
        self.log_rq_size = get(context, "log_rq_size")
        self.receive_shift = get(context, "log_rq_stride") + LOG_RECEIVE_UNIT
        self.receives: QueueBuffer | None = None
        self.sends: QueueBuffer | None = None
        self._find_rings(kind, data)
        self._record = around.pages.record(QPC, context) & ~3

    def _find_rings(self, kind: int, data: bytes) -> None:
        get, context, pages = QPC.get, self.context, self._around.pages
        shift, offset = get(context, "log_page_size"), get(context, "page_offset")
        place, receives = pages.place(QP_IN, data, data[QP_IN.size :], shift, offset), 0
        if kind == Receives.OWN:
            receives = 1 << (self.log_rq_size + self.receive_shift)
            self.receives = pages.buffer(place, receives)
        if not get(context, "no_sq"):
            self.sends = pages.buffer(place, BLOCK_BYTES << self.log_sq_size, receives)

    def make(
        self,
        number: int,
        context: bytearray,
        completions: PairCompletions,
        srqs: SharedReceiveQueues,
        troubles: Callable[[int], Diagnostics],
        failed: Callable[[QueuePair], None],
        network: NetworkSettings,
        updater: KeyUpdater,
    ) -> CardPair:
        """Return the queue pair with its engines and rings, for RST2INIT_QP."""
        around = self._around
        pair = CardPair(around, number, context, srqs, troubles, failed, completions)
        _attach_engines(pair, network)
        if self.sends is not None:
            datagrams = not pair.connected
            pair.sq = SendRing(
                around.bus,
                pair,
                pair.engine,
                self.sends,
                self.log_sq_size,
                self._record,
                around.faults,
                page=QPC.get(context, "uar"),
                reader=_reader_of(pair, updater),
                what=What.UD_WQE if datagrams else What.SQ_WQE,
            )
        if self.receives is not None:
            pair.rq = ReceiveRing(
                around.bus,
                number,
                pair.pd,
                self.receives,
                0,
                self.log_rq_size,
                self.receive_shift,
                self._record,
            )
        return pair


def _reader_of(pair: CardPair, updater: KeyUpdater) -> Callable[[bytes, int], SendWork]:
    if not pair.connected:
        return read_datagram
    return UpdatingReader(pair, updater, read_xrc if pair.role is Role.XRC else read_message).read


def _attach_engines(pair: CardPair, network: NetworkSettings) -> None:
    """Give a queue pair its engines; one of UMR hears nobody."""
    pair.responder = ReceiveEngine()
    hears = pair.connected and QPC.get(pair.context, "service") != Service.UMR
    if not pair.connected:
        pair.engine = DatagramSender(pair)
    elif network.packets:
        pair.engine = PacketSender(pair, network.ack_timeout_factor)
    else:
        pair.engine = PartSender(pair, fast_rnr=network.fast_rnr)
    if hears:
        pair.responder = PacketReceiver(pair) if network.packets else PartReceiver(pair)


def path_of(table: Struct, data: bytes | bytearray, prefix: str = "") -> Path:
    """Return the path in an address vector (`DATAGRAM`), or with a prefix that in a context."""
    get = table.get
    path = Path()
    path.source = path.gid_index = get(data, f"{prefix}source")
    path.mac = table.get_raw(data, f"{prefix}rmac")
    path.global_route = True
    path.gid = table.get_raw(data, f"{prefix}rgid")
    path.traffic_class = get(data, f"{prefix}tclass")
    path.hop_limit = get(data, f"{prefix}hop_limit")
    path.flow_label = get(data, f"{prefix}flow_label")
    path.priority = get(data, f"{prefix}priority")
    path.udp_port = get(data, f"{prefix}udp_port")
    return path
