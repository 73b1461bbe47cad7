"""Queue pairs of the adapter as the contexts (QPC) that drivers write describe them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bluebridge.device.frames.receiving import (
    HASH_IPV4,
    HASH_IPV6,
    HASH_TCP_IPV4,
    HASH_TCP_IPV6,
    HASH_UDP_IPV4,
    HASH_UDP_IPV6,
    Spreader,
)
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import (
    QPC,
    RSS,
    RSS_HASHES,
    RSS_OFFSET,
    RssFlag,
    ServiceType,
)
from bluebridge.device.mlx4.ports.interface_counters import InterfaceCounters
from bluebridge.device.mlx4.ports.multicast_groups import path_of_context, path_of_vector
from bluebridge.device.mlx4.settings.capabilities import LOG_RSS_TABLE
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.queue_pair import DEFAULT_LOG_MESSAGE, QueuePair
from bluebridge.device.rdma.pairs.queues import Completions, SharedReceiveQueues
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.port_tables import Path
from bluebridge.device.rdma.vocabulary import Role

ETHERNET_MTU_MSGMAX: Final = 0xFF

_ROLES: Final = {
    int(ServiceType.RC): Role.RC,
    int(ServiceType.UC): Role.UC,
    int(ServiceType.UD): Role.UD,
    int(ServiceType.XRC): Role.XRC,
}

HASH_XOR: Final = 0
_HASHED: Final = {
    int(RssFlag.IPV4): HASH_IPV4,
    int(RssFlag.IPV6): HASH_IPV6,
    int(RssFlag.TCP_IPV4): HASH_TCP_IPV4,
    int(RssFlag.TCP_IPV6): HASH_TCP_IPV6,
    int(RssFlag.UDP_IPV4): HASH_UDP_IPV4,
    int(RssFlag.UDP_IPV6): HASH_UDP_IPV6,
}


class HcaPair(QueuePair):
    """A queue pair of one HCA; `context` is the QPC as merged so far."""

    def __init__(
        self,
        qpn: int,
        role: Role,
        context: bytearray,
        *,
        bus: HostBus,
        regions: MemoryRegions,
        memory: LocalMemory,
        completions: Completions,
        srqs: SharedReceiveQueues,
        ports: Sequence[Port],
        counters: InterfaceCounters,
        failed: Callable[[QueuePair], None],
    ) -> None:
        super().__init__(
            qpn,
            role,
            bus=bus,
            regions=regions,
            memory=memory,
            completions=completions,
            srqs=srqs,
            port=ports[0],
            traffic=counters.of(0),
            failed=failed,
        )
        self.context = context
        self._ports = ports
        self._counters = counters
        self.load()

    def load(self) -> None:
        """Set the attributes from the context, after each transition."""
        get, context = QPC.get, self.context
        self.take_context(QPC, context)
        self.max_message = 1 << (get(context, "msg_max") or DEFAULT_LOG_MESSAGE)
        self.xrcd = get(context, "xrcd")
        self.srqn = get(context, "srqn") if get(context, "use_srq") else None
        self.fast_register = bool(get(context, "fast_reg_enable"))
        self.strip_vlan = not get(context, "no_vlan_strip")
        self.keep_fcs = bool(get(context, "keep_fcs"))
        self.traffic = self._counters.of(get(context, "pri_counter_index"))
        ports, number = self._ports, get(context, "pri_port")
        self.port = ports[number] if number < len(ports) else ports[0]
        self.count_troubles(self.port.diagnostics)
        self.path = path_of_context(context)
        self.reroute()

    def read_path(self, address: bytes) -> Path:
        """Return the path in an address vector and what follows it in the entry."""
        return path_of_vector(address)


class Ring(NamedTuple):
    """One ring: byte offset in the buffer, logarithms of its entries and of their stride."""

    base: int
    log_size: int
    shift: int


class RingGeometry(NamedTuple):
    """Both rings of a queue pair; `receives` is None without one, `length` is in bytes."""

    sends: Ring
    receives: Ring | None
    length: int


def ring_geometry(context: bytes | bytearray, role: Role) -> RingGeometry:
    """Return the places of both rings in one buffer: the one with longer entries is first."""
    get = QPC.get
    log_sq, sq_shift = get(context, "log_sq_size"), get(context, "log_sq_stride") + 4
    sq_bytes = 1 << (log_sq + sq_shift)
    if not _has_receive_queue(context, role):
        return RingGeometry(Ring(0, log_sq, sq_shift), None, sq_bytes)
    log_rq, rq_shift = get(context, "log_rq_size"), get(context, "log_rq_stride") + 4
    rq_bytes = 1 << (log_rq + rq_shift)
    sq_base, rq_base = (rq_bytes, 0) if rq_shift > sq_shift else (0, sq_bytes)
    return RingGeometry(
        Ring(sq_base, log_sq, sq_shift), Ring(rq_base, log_rq, rq_shift), sq_bytes + rq_bytes
    )


def _has_receive_queue(context: bytes | bytearray, role: Role) -> bool:
    """Return True if the context describes a receive queue.

    Without one its size byte and doorbell record may be anything: drivers leave garbage. A size
    byte of zero is one entry of 16 bytes where the send queue has one entry, too, as receive work
    queues have (Linux `ib/qp.c: create_rq`), and no queue else.
    """
    get = QPC.get
    if get(context, "use_srq") or not get(context, "doorbell_record"):
        return False
    sized = get(context, "log_rq_size") or get(context, "log_rq_stride")
    return role is not Role.ETHERNET or bool(sized) or not get(context, "log_sq_size")


def role_of(qpn: int, context: bytes | bytearray, special_base: int) -> Role:
    """Return the role in a context; raises `CommandError` for services that are not offered.

    `special_base` is the first of the eight special QP numbers (CONF_SPECIAL_QP), 0 before.
    """
    service = QPC.get(context, "service")
    role = _ROLES.get(service)
    if role is not None:
        return role
    if service != ServiceType.MLX:
        raise CommandError(Status.BAD_PARAM, f"service type {service}")
    if QPC.get(context, "rss"):
        return Role.RSS
    if special_base and qpn in (special_base, special_base + 1):
        return Role.SMI
    if special_base and qpn in (special_base + 2, special_base + 3):
        return Role.GSI
    # a hidden GSI queue pair of RoCE v2 has a general number and a limit on its messages
    full = QPC.get(context, "mtu_msgmax")
    return Role.ETHERNET if full in (ETHERNET_MTU_MSGMAX, 0) else Role.GSI


def spreader_of(context: bytes | bytearray) -> Spreader:
    """Return the spreader that an RSS context asks for.

    Raises `CommandError` (BAD_PARAM) for what QUERY_DEV_CAP does not offer: a larger table,
    another hash, headers inside of tunnels (Linux `mlx4_en.h: MLX4_RSS_BY_INNER_HEADERS`).
    """
    get = RSS.get
    log_size = get(context, "log_table_size", RSS_OFFSET)
    if log_size > LOG_RSS_TABLE:
        raise CommandError(Status.BAD_PARAM, f"an RSS table of 2^{log_size} entries")
    function = get(context, "hash_fn", RSS_OFFSET)
    if function not in RSS_HASHES:
        raise CommandError(Status.BAD_PARAM, f"RSS hash function {function}")
    flags = get(context, "flags", RSS_OFFSET)
    if flags & ~sum(_HASHED):
        raise CommandError(Status.BAD_PARAM, f"RSS flags {flags:#x}")
    base = get(context, "base_qpn", RSS_OFFSET)
    return Spreader(
        log_size=log_size,
        base=base,
        base_udp=get(context, "base_qpn_udp", RSS_OFFSET) or base,
        default=get(context, "default_qpn", RSS_OFFSET) or base,
        hashed=sum(hashed for flag, hashed in _HASHED.items() if flags & flag),
        key=None if function == HASH_XOR else RSS.get_raw(context, "key", RSS_OFFSET),
    )
