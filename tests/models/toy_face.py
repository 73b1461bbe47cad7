"""The smallest face of the engines: one kind of ring, one doorbell, one kind of completion.

A toy adapter chooses the numbers of its queue pairs. Their driver writes 32-byte entries into a
ring and stores the number of entries into the doorbell; completions are 16 bytes each. It shares
nothing with any card but the engines and the fabric, and it is all that an adapter needs to speak
with another: what it does not need, no face has to have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from bluebridge.device.ethernet.sender import EthernetSender
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.messages import Datagram, Frames, Train
from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import Op, ipv4_gid
from bluebridge.device.queue_pairs import QueuePairs
from bluebridge.device.rdma import vocabulary
from bluebridge.device.rdma.connected.part_sender import PartSender
from bluebridge.device.rdma.connected.receiver import PartReceiver
from bluebridge.device.rdma.datagrams.sender import DatagramSender
from bluebridge.device.rdma.memory.region import ALL_RIGHTS, AccessError, MemoryRegion, Part
from bluebridge.device.rdma.memory.regions import REGISTERED, Entries, MemoryRegions, Values
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.engines import ReceiveEngine, SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import (
    Completions,
    OwnReceiveQueue,
    Received,
    SendQueue,
    SharedReceiveQueue,
    SharedReceiveQueues,
)
from bluebridge.device.rdma.ports.counters import Diagnostics, InterfaceCounter, Trouble
from bluebridge.device.rdma.ports.face import PortEvents
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.port_tables import Path, Source, Sources
from bluebridge.device.rdma.ports.steering import Delivery, Steering
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus, PairState, Role
from bluebridge.device.rdma.work import DatagramWork, FrameWork, ReceiveWork, SendWork, WorkError
from tests.models.fake_host import FakeHost

ENTRY = Struct("<BxHIQQII")
"""Kind, nothing, nothing, length, own address, peer's address, own key, peer's key."""
COMPLETION = Struct("<IIII")
"""1 for a valid one, number of the entry, status, length."""
ENTRIES = 16
QPN = 7
PD = 3
FIRST_PSN = 100


class Kind(IntEnum):
    """Kinds of entries."""

    RECEIVE = 1
    SEND = 2
    WRITE = 3
    READ = 4
    DATAGRAM = 5
    FRAME = 6
    UPDATE = 7


_OPERATIONS = {
    Kind.SEND: vocabulary.SEND, Kind.WRITE: vocabulary.WRITE, Kind.READ: vocabulary.READ,
    Kind.DATAGRAM: vocabulary.SEND, Kind.FRAME: vocabulary.SEND,
}  # fmt: skip
_WORK: dict[int, type[SendWork]] = {Kind.DATAGRAM: DatagramWork, Kind.FRAME: FrameWork}
TROUBLES = {Trouble.TIMED_OUT: "silence", Trouble.SEND_FLUSHED: "swept"}
"""Names of the counters that a toy has; it counts nothing else."""
MOST_FRAME = 1518
QKEY = 0x1234


class ToyCompletions(Completions):
    """Writes completions one behind the other; sends that are collected are written at once."""

    def __init__(self, host: FakeHost, address: int) -> None:
        self._host = host
        self._next = address
        self.events: list[AsyncEvent] = []

    def _write(self, index: int, status: int, length: int) -> None:
        self._host.write(self._next, COMPLETION.pack(1, index, status, length), What.CQE)
        self._next += COMPLETION.size

    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        self._write(index, 0, length)

    def fail_send(self, index: int, status: CompletionStatus) -> None:
        self.diagnostics.send_failed(status)
        self._write(index, status, 0)

    def collect_send(self, index: int, operation: int, length: int) -> None:
        self._write(index, 0, length)

    def post_collected(self, left: int = 0) -> None:
        """None wait."""

    def forget_collected(self) -> None:
        """None wait."""

    def complete_receive(self, index: int, op: Op, length: int, *more: int, cqn: int = -1) -> None:
        self._write(index, 0, length)

    def complete_datagram(self, index: int, message: Datagram, *more: object) -> None:
        self._write(index, 0, len(message.payload))

    def complete_frames(
        self, receives: Sequence[tuple[ReceiveWork, bytes]], received: Sequence[Received]
    ) -> None:
        for (work, frame), known in zip(receives, received, strict=True):
            self._write(work.index, known.mark << 8, len(frame))

    def fail_receive(
        self, index: int, status: CompletionStatus, cqn: int = -1, source: int = 0
    ) -> None:
        self.diagnostics.receive_failed(status)
        self._write(index, status, 0)

    def event(self, event: AsyncEvent) -> None:
        self.events.append(event)


class ToyReceives(OwnReceiveQueue):
    """Receives that came through the ring."""

    def __init__(self) -> None:
        self.posted: deque[ReceiveWork] = deque()

    def waiting(self) -> bool:
        return bool(self.posted)

    def take(self) -> ReceiveWork | None:
        return self.posted.popleft() if self.posted else None

    def take_many(self, count: int) -> list[ReceiveWork]:
        return [self.posted.popleft() for _ in range(min(count, len(self.posted)))]

    def drop(self) -> int:
        return self.posted.popleft().index


class ToyRing(SendQueue):
    """The one ring: entries from `_done` to `posted` are new."""

    def __init__(self, host: FakeHost, address: int, qp: QueuePair, receives: ToyReceives) -> None:
        self._host = host
        self._address = address
        self._qp = qp
        self._receives = receives
        self._done = 0
        self.posted = 0

    def go_on(self) -> None:
        self.run()

    def run(self) -> None:
        qp = self._qp
        while self._done < self.posted:
            index = self._done
            if qp.state is PairState.ERR:
                self._done += 1
                qp.completions.fail_send(index, CompletionStatus.WR_FLUSH_ERR)
            elif qp.state is PairState.RTS and not qp.engine.blocked():
                self._done += 1
                self._carry_out(index)
            else:
                break
        qp.engine.finish()

    def _carry_out(self, index: int) -> None:
        at = self._address + index % ENTRIES * ENTRY.size
        raw = self._host.read(at, ENTRY.size, What.SQ_WQE)
        kind, _, length, address, remote, lkey, rkey = ENTRY.unpack(raw)
        if kind == Kind.RECEIVE:
            self._receives.posted.append(ReceiveWork(index, [(lkey, address, length)], PD))
        elif kind == Kind.UPDATE:
            self._update(index, lkey, length, address)
        elif kind not in _OPERATIONS:
            self._qp.engine.refuse(index, WorkError(f"an entry of kind {kind}"))
        else:
            work = _WORK.get(kind, SendWork)(index, _OPERATIONS[Kind(kind)])
            work.signalled, work.parts, work.length = True, [(lkey, address, length)], length
            work.remote_address, work.rkey = remote, rkey
            if isinstance(work, DatagramWork):  # `remote` is an address of the adapter's table
                work.address, work.target_qpn, work.qkey = bytes((remote,)), rkey, QKEY
            self._qp.engine.execute(work)

    def _update(self, index: int, key: int, at: int, page: int) -> None:
        """Replace one page of a region in use: the entry brings it along."""
        try:
            self._qp.regions.update(key, 0, Values(), Entries(12, lambda _: (page,), 1), at)
        except AccessError:
            self._qp.completions.fail_send(index, CompletionStatus.LOCAL_PROT_ERR)
        else:
            self._qp.completions.complete_send(index, Kind.UPDATE, 0)


class ToyPair(QueuePair):
    """A queue pair, whose datagrams go to the addresses of its adapter's table."""

    addresses: list[Path]

    def read_path(self, address: bytes) -> Path:
        return self.addresses[address[0]]


class Nothing(PortEvents, SharedReceiveQueues):
    """The parts that a toy does without."""

    def link_changed(self, number: int, *, active: bool) -> None:
        """Nobody is told."""

    def management_changed(self, agent: PortAgent, change: Change) -> None:
        """Nobody is told."""

    def get(self, srqn: int) -> SharedReceiveQueue | None:
        return None


class ToySources(Sources):
    """Entries with an address of each kind, a VLAN and a version of RoCE; paths name one."""

    def __init__(self, mac: bytes, gid: bytes) -> None:
        self.entries = [Source(mac, gid, NO_VLAN, 1)]

    def of(self, path: Path) -> Source:
        return self.entries[path.source]

    @property
    def mac(self) -> bytes:
        return self.entries[0].mac

    def macs_in_use(self) -> frozenset[bytes]:
        return frozenset(entry.mac for entry in self.entries)

    def gids_in_use(self) -> frozenset[bytes]:
        return frozenset(entry.gid for entry in self.entries)

    def reset(self) -> None:
        """The first entry is burned in."""
        del self.entries[1:]


class ToySteering(Steering):
    """Frames go to the ring that is registered for their type, marked with its low byte."""

    def __init__(self) -> None:
        self.rings: dict[bytes, int] = {}

    def frame(
        self, port: Port, train: Train, headers: FrameHeaders, message: Frames
    ) -> list[Delivery]:
        kind = train.frames[0][12:14]
        ring = self.rings.get(kind)
        return [] if ring is None else [Delivery(ring, mark=kind[1])]

    def miss(self, qpn: int, frames: int) -> None:
        """Only the port counts them."""

    def group(self, port: Port, message: Datagram) -> list[tuple[int, bool]]:
        return []

    def datagram(self, port: Port, message: Datagram) -> None:
        return None

    def forget(self, qpn: int) -> None:
        self.rings = {kind: ring for kind, ring in self.rings.items() if ring != qpn}


def stays_out(port: Port, work: FrameWork, frame: bytes) -> tuple[bool, bool]:
    """No frame comes back."""
    return False, False


class ToyEnd:
    """A queue pair of a toy with its ring and completions, and its driver."""

    def __init__(self, toy: Toy, number: int, role: Role) -> None:
        self._host = host = toy.host
        self._ring = host.allocate(ENTRIES * ENTRY.size)
        self._completions = host.allocate(4096)
        completions = ToyCompletions(host, self._completions)
        self.events = completions.events
        self.number = number
        self.qp = ToyPair(
            number,
            role,
            bus=host,
            regions=toy.regions,
            memory=LocalMemory(host, toy.regions, PD, number, reserved_lkey=False),
            completions=completions,
            srqs=toy.nothing,
            port=toy.port,
            traffic=InterfaceCounter(),
            failed=toy.qps.failed.add,
        )
        self.qp.pd, self.qp.qkey, self.qp.addresses = PD, QKEY, toy.addresses
        self.qp.count_troubles(toy.diagnostics)
        receives = ToyReceives()
        self._queue = ToyRing(host, self._ring, self.qp, receives)
        self.qp.sq, self.qp.rq = self._queue, receives
        self.qp.engine, self.qp.responder = self._engines(role)
        toy.qps.add(self.qp)
        self._posted = 0

    def _engines(self, role: Role) -> tuple[SendEngine, ReceiveEngine]:
        if role is Role.RC:
            return PartSender(self.qp), PartReceiver(self.qp)
        if role is Role.UD:
            return DatagramSender(self.qp), ReceiveEngine()
        return EthernetSender(self.qp, MOST_FRAME, stays_out), ReceiveEngine()

    def post(
        self, kind: int, local: tuple[int, int], length: int, remote: tuple[int, int] = (0, 0)
    ) -> None:
        """Write an entry and ring the doorbell; `local` and `remote` are address and key."""
        raw = ENTRY.pack(kind, 0, length, local[0], remote[0], local[1], remote[1])
        self._host.poke(self._ring + self._posted % ENTRIES * ENTRY.size, raw)
        self._posted += 1
        self.doorbell(self._posted)

    def doorbell(self, posted: int) -> None:
        """The one register: how many entries the driver has written."""
        self._queue.posted = posted
        self._queue.run()

    def completions(self) -> list[tuple[int, int, int]]:
        """Number, status and length of all completions there are."""
        found = []
        for at in range(self._completions, self._completions + 4096, COMPLETION.size):
            valid, *values = COMPLETION.unpack(self._host.peek(at, COMPLETION.size))
            if not valid:
                break
            found.append((values[0], values[1], values[2]))
        return found


class Toy:
    """An adapter of this kind in a host of its own, and the driver of it.

    It has a connected queue pair, number `QPN`; the adapter numbers further ones from there on.
    """

    def __init__(self, fabric: Fabric, number: int) -> None:
        self.host = host = FakeHost(f"toy{number}")
        self.mac = bytes((2, 0, 0, 0, 10, number))
        self.gid = ipv4_gid(bytes((192, 168, 69, number)))
        self.nothing = Nothing()
        self.diagnostics = Diagnostics()
        self.addresses: list[Path] = []
        self.steering, self.sources = ToySteering(), ToySources(self.mac, self.gid)
        self.regions = MemoryRegions(
            reserved_lkey=0, pd_bits=24, page_shifts=range(12, 31), most_pages=64
        )
        self.port = Port(1, fabric, self.mac, host, self.nothing, self.sources)
        self.qps = QueuePairs(host, self.regions, self.steering, limit=4)
        self._next = QPN
        self.main = self.create(Role.RC)
        self.qp, self.events = self.main.qp, self.main.events
        self.post, self.completions = self.main.post, self.main.completions
        self.port.attach(self.qps.receive)
        self.port.open()

    def create(self, role: Role) -> ToyEnd:
        """Make a queue pair, whose number the adapter chooses; one without a peer is ready."""
        self._next += 1
        end = ToyEnd(self, self._next - 1, role)
        if role is not Role.RC:
            end.qp.set_state(PairState.RTS)
        return end

    def troubles(self) -> dict[str, int]:
        """The counters that a toy has, by its own names."""
        counts = self.diagnostics.counts
        return {name: counts[trouble] for trouble, name in TROUBLES.items() if trouble in counts}

    def connect(self, mac: bytes, gid: bytes, qpn: int) -> None:
        """Bring the queue pair to RTS towards a peer."""
        qp = self.qp
        qp.remote_qpn, qp.path.mac, qp.path.gid, qp.path.hop_limit = qpn, mac, gid, 64
        qp.remote_read = qp.remote_write = True
        qp.ack_timeout, qp.retry_count, qp.rnr_retry = 14, 2, 7
        qp.engine.next_psn = qp.responder.psn = FIRST_PSN
        qp.reroute()
        qp.set_state(PairState.RTS)

    def memory(self, length: int, index: int) -> tuple[int, int]:
        """Fresh pages, and the key of a region over them whose addresses are their own."""
        address, key = self.host.allocate(length), index << 8
        region = MemoryRegion(
            index, key, PD, ALL_RIGHTS, address, length, 12,
            physical=True, fast=False, may_invalidate=False, free=False, max_pages=0,
        )  # fmt: skip
        self.regions.add(region)
        return address, key

    def indirect(self, index: int, *parts: Part, pages: Sequence[int] = ()) -> int:
        """The key of a region from address 0 on, of parts of others or of pages."""
        key = index << 8
        region = MemoryRegion(
            index, key, PD, 0, 0, 0, 12,
            physical=False, fast=True, may_invalidate=True, free=True, max_pages=16,
        )  # fmt: skip
        self.regions.add(region)
        length = sum(part.length for part in parts) or len(pages) << 12
        entries = Entries(parts=parts) if parts else Entries(12, lambda count: pages[:count])
        values = Values(key=key, rights=ALL_RIGHTS, length=length)
        self.regions.update(key, REGISTERED, values, entries)
        return key
