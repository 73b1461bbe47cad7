"""The objects of one adapter, wired once: those of its network device here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.ethernet.receiver import FrameReceiver
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.messages import ConnectedPacket, Frames, Message
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import RQC, SQC, TIRC, TISC, Dispatch
from bluebridge.device.layout.net.ethernet import ETHERTYPE_VLAN
from bluebridge.device.mlx5.numbers import Numbers, Table
from bluebridge.device.mlx5.objects.keys import NULL_KEY, PAGE_SHIFTS, RESERVED_LKEY, MemoryKeys
from bluebridge.device.mlx5.objects.rdma import RdmaObjects
from bluebridge.device.mlx5.ports.registers import PortRegisters
from bluebridge.device.mlx5.ports.roce_addresses import OwnAddresses
from bluebridge.device.mlx5.ports.vport import LinkEvents, Vport
from bluebridge.device.mlx5.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.frame_queues import (
    ReceiveQueueObject,
    SendQueueObject,
    receive_place,
    send_place,
)
from bluebridge.device.mlx5.rings.page_lists import PageLists
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.mlx5.settings.capabilities import COUNTER_SETS
from bluebridge.device.mlx5.settings.config import Config
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.mlx5.steering.receiver import FrameSteering
from bluebridge.device.mlx5.steering.spreading import Hashes, QueueTable, Tir
from bluebridge.device.mlx5.steering.tables import FlowTables
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.pairs.queues import CUSTOMER_TAG
from bluebridge.device.rdma.ports.counters import Diagnostics, InterfaceCounter
from bluebridge.device.rdma.ports.port import Port

PD_BITS: Final = 24
MOST_REGISTERED_PAGES: Final = 1 << 20
MAX_PDS: Final = 1 << 16
MAX_DOMAINS: Final = 1 << 8
FIRST_QUEUE: Final = 0x1000
MAX_QUEUES: Final = 1 << 17
MAX_TIS: Final = 1 << 10
MAX_TIRS: Final = 1 << 12
MAX_QUEUE_TABLES: Final = 1 << 12
MOST_TABLE_QUEUES: Final = 1 << 8
STRIPPED_TAGS: Final = {ETHERTYPE_VLAN.to_bytes(2, "big"): CUSTOMER_TAG}


class Objects:
    """All objects of one adapter but event queues, and its port on `fabric`.

    SQs, RQs and queue pairs have numbers of one range: completions name them by number.
    """

    def __init__(
        self,
        bus: HostBus,
        fabric: Fabric,
        config: Config,
        pages: PageLists,
        eqs: EventQueues,
        faults: ArmedFaults,
    ) -> None:
        self.sources = OwnAddresses(config.mac)
        self.port = Port(1, fabric, config.mac, bus, LinkEvents(eqs), self.sources)
        self.vport = Vport(self.port, self.sources, config.node_guid)
        self.registers = PortRegisters(self.port)
        self.pds = Numbers("PD", 1, MAX_PDS)
        self.domains = Numbers("transport domain", 1, MAX_DOMAINS)
        self.counter_sets = Numbers("counter set", 1, COUNTER_SETS)
        regions = MemoryRegions(
            reserved_lkey=RESERVED_LKEY,
            pd_bits=PD_BITS,
            page_shifts=PAGE_SHIFTS,
            most_pages=MOST_REGISTERED_PAGES,
            absent_key=NULL_KEY,
        )
        self.keys = MemoryKeys(regions, pages.users)
        self.cqs = CompletionQueues(bus, pages, eqs)
        self._around = Surroundings(
            bus, pages, regions, self.cqs, eqs, self.port, faults, self.vport.comes_back
        )
        self._queue_numbers = Numbers("queue", FIRST_QUEUE, MAX_QUEUES)
        self.sqs: Table[SendQueueObject] = Table("SQ", self._queue_numbers)
        self.rqs: Table[ReceiveQueueObject] = Table("RQ", self._queue_numbers)
        self.tises: Table[bytes] = Table("TIS", Numbers("TIS", 1, MAX_TIS))
        self.tirs: Table[Tir] = Table("TIR", Numbers("TIR", 1, MAX_TIRS))
        self._hashes: Hashes = {}
        self.queue_tables: Table[QueueTable] = Table("RQT", Numbers("RQT", 1, MAX_QUEUE_TABLES))
        self.flows = FlowTables()
        self.steering = FrameSteering(self.flows, self.tirs, self.rqs, self._domain_of)
        self.rdma = RdmaObjects(
            self._around, self._queue_numbers, config.network, self.steering, self.keys.updater
        )
        self._frames = FrameReceiver(self.rqs.get, self.steering, STRIPPED_TAGS)
        self.port.attach(self._receive)

    def reset(self) -> None:
        """Forget all objects: no DMA and no event from now on; the link goes down."""
        for queue in (*self.sqs.values(), *self.rqs.values()):
            queue.stop()
            queue.dismantle()
        self.rdma.reset()
        self._hashes.clear()
        for table in (self.sqs, self.rqs, self.tises, self.tirs, self.queue_tables):
            table.reset()
        for numbers in (self.pds, self.domains, self.counter_sets):
            numbers.reset()
        self.steering.missed.clear()
        self.traffic.clear()
        self.flows.reset()
        self.cqs.reset()
        self.keys.reset()
        self.vport.reset()
        self.port.reset()
        self.registers.reset()

    def leave(self) -> None:
        """Leave the fabric for good."""
        self.port.leave()

    def _domain_of(self, number: int) -> int:
        """Return the transport domain of an SQ; 0 for none, which is no number of one."""
        queue = self.sqs.get(number)
        context = None if queue is None else self.tises.get(SQC.get(queue.context, "tisn"))
        return 0 if context is None else TISC.get(context, "transport_domain")

    def _receive(self, port: Port, message: Message | ConnectedPacket) -> int:
        if isinstance(message, Frames):
            return self._frames.receive(port, self.registers.admitted(message))
        return self.rdma.pairs.receive(port, message) if self.vport.roce else 0

    @property
    def traffic(self) -> InterfaceCounter:
        """The packets of queue pairs."""
        return self._around.traffic

    def set_roce_address(self, index: int, address: bytes) -> Iterator[None]:
        """Set or remove an address that messages come from, at once; raises `Refused`.

        Queue pairs learn of it in portions.
        """
        self.sources.set_entry(index, address)
        self.port.sources_changed()
        return self.rdma.pairs.reroute_in_portions(self.port)

    # -- counters ---------------------------------------------------------------------------------

    def create_counters(self) -> int:
        """Make a set of counters, which are zero; returns its number. Raises `Refused`."""
        number = self.counter_sets.take()
        self.steering.missed.pop(number, None)
        self.rdma.sets[number] = Diagnostics(self.port.diagnostics)
        return number

    def destroy_counters(self, number: int) -> None:
        """Destroy a set of counters; raises `Refused` (BAD_RES)."""
        self.counter_sets.free(number)
        self.rdma.sets.pop(number, None)

    def counts(self) -> dict[str, int]:
        """Return how many objects of each kind there are."""
        return {
            "pd": len(self.pds),
            "td": len(self.domains),
            "mkey": len(self.keys),
            "cq": len(self.cqs),
            "qp": len(self.rdma.made),
            "srq": len(self.rdma.srqs),
            "xrcd": len(self.rdma.xrcds),
            "sq": len(self.sqs),
            "rq": len(self.rqs),
            "tis": len(self.tises),
            "tir": len(self.tirs),
            "rqt": len(self.queue_tables),
            "ft": len(self.flows),
            "counter set": len(self.counter_sets),
            "umem": len(self._around.pages.users),
        }

    # -- queues -----------------------------------------------------------------------------------

    def create_sq(self, context: bytes, listed: bytes) -> int:
        """Make an SQ in RST (CREATE_SQ); returns its number. Raises `Refused`."""
        self.cqs.known(SQC.get(context, "cqn"))
        place = send_place(self._around.pages, context, listed)
        number = self._queue_numbers.take()
        self.sqs[number] = SendQueueObject(self._around, number, context, place)
        return number

    def create_rq(self, context: bytes, listed: bytes) -> int:
        """Make an RQ in RST (CREATE_RQ); returns its number. Raises `Refused`."""
        self.cqs.known(RQC.get(context, "cqn"))
        place = receive_place(self._around.pages, context, listed)
        number = self._queue_numbers.take()
        self.rqs[number] = ReceiveQueueObject(self._around, number, context, place)
        return number

    def destroy_sq(self, number: int) -> None:
        """Destroy an SQ, which completes nothing from now on; raises `Refused`."""
        queue = self.sqs.remove(number)
        queue.stop()
        queue.dismantle()

    def destroy_rq(self, number: int) -> None:
        """Destroy an RQ, which gets nothing from now on; raises `Refused`."""
        queue = self.rqs.remove(number)
        queue.stop()
        queue.dismantle()

    def ring_of(self, number: int) -> SendRing | None:
        """Return the entries of an SQ, or of a queue pair outside of RST; None if there is none."""
        queue = self.sqs.get(number)
        return self.rdma.ring_of(number) if queue is None else queue.ring

    # -- interfaces of send and receive ----------------------------------------------------------

    def create_tir(self, context: bytes) -> int:
        """Make a TIR; returns its number. Raises `Refused`: BAD_PARAM, BAD_RES, LIM_ERR."""
        kind, table = TIRC.get(context, "dispatch"), None
        if kind == Dispatch.INDIRECT:
            table = self.queue_tables.known(TIRC.get(context, "rqtn"))
        elif kind == Dispatch.DIRECT:
            self.rqs.known(TIRC.get(context, "rqn"))
        else:
            raise Refused(Status.BAD_PARAM, f"a TIR of kind {kind}")
        return self.tirs.add(Tir(context, table, self._hashes))

    def create_queue_table(self, queues: list[int]) -> int:
        """Make an RQT; returns its number. Raises `Refused`: BAD_PARAM, BAD_RES, LIM_ERR."""
        self.check_queues(queues)
        return self.queue_tables.add(QueueTable(queues))

    def check_queues(self, queues: list[int]) -> None:
        """Raise `Refused` unless all these are RQs, and not more than a table may have."""
        if not 0 < len(queues) <= MOST_TABLE_QUEUES:
            raise Refused(Status.BAD_PARAM, f"a table of {len(queues)} queues")
        for number in queues:
            self.rqs.known(number)
