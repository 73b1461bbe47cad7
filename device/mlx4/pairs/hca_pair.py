"""A queue pair of the adapter, described by the context (QPC) that drivers write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import unpack
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.device.mlx4.ports.paths import path_of_context, path_of_vector
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.queue_pair import DEFAULT_LOG_MESSAGE, DEFAULT_MTU, QueuePair
from bluebridge.device.rdma.pairs.queues import Completions, SharedReceiveQueues
from bluebridge.device.rdma.ports.counters import InterfaceCounters
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.port_tables import Path
from bluebridge.device.rdma.vocabulary import Role

PAGE_MASK: Final = ~7


class HcaPair(QueuePair):
    """A queue pair of one HCA; `context` is the QPC as merged so far, `uar` its doorbell page."""

    __slots__ = ("_counters", "_ports", "context", "uar")

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
        self.pd = get(context, "pd")
        self.uar = get(context, "uar")
        self.remote_qpn = get(context, "remote_qpn")
        self.mtu = MTU_BYTES.get(get(context, "mtu"), DEFAULT_MTU)
        self.max_message = 1 << (get(context, "msg_max") or DEFAULT_LOG_MESSAGE)
        self.qkey = get(context, "qkey")
        self.pkey_index = get(context, "pri_pkey_index")
        self.xrcd = get(context, "xrcd")
        self.srqn = get(context, "srqn") if get(context, "use_srq") else None
        self.fast_register = bool(get(context, "fast_reg_enable"))
        self.remote_read = bool(get(context, "remote_read"))
        self.remote_write = bool(get(context, "remote_write"))
        self.remote_atomic = bool(get(context, "remote_atomic"))
        self.min_rnr_timer = get(context, "min_rnr_timer")
        self.retry_count = get(context, "retry_count")
        self.rnr_retry = get(context, "rnr_retry")
        self.ack_timeout = get(context, "pri_ack_timeout")
        self.read_limit = 1 << get(context, "sra_max")
        self.answer_limit = 1 << get(context, "rra_max")
        self.strip_vlan = not get(context, "no_vlan_strip")
        self.keep_fcs = bool(get(context, "keep_fcs"))
        self.traffic = self._counters.of(get(context, "pri_counter_index"))
        ports, number = self._ports, get(context, "pri_port")
        self.port = ports[number] if number < len(ports) else ports[0]
        self.completions.diagnostics = self.port.diagnostics
        self.path = path_of_context(context)
        self.reroute()

    def read_path(self, address: bytes) -> Path:
        """Return the path in an address vector and what follows it in the entry."""
        return path_of_vector(address)

    def read_pages(self, page_list: int, count: int) -> list[int]:
        """Return the addresses in the page list of a fast registration, without their flags."""
        raw = self.bus.read(page_list, count * 8, What.PAGE_LIST, self.qpn)
        return [entry & PAGE_MASK for entry in unpack(f">{count}Q", raw)]
