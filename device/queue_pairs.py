"""The table of queue pairs, which finds them by number and hands them messages of the fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.device.ethernet.receiver import FrameReceiver
from bluebridge.device.fabric.messages import (
    ConnectedPacket,
    Datagram,
    Frames,
    Message,
    Request,
    Response,
    Route,
)
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ib.link import partitions_match
from bluebridge.device.layout.net.roce import ANSWERS, CONGESTION_SERVICE
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.datagrams.receiver import DatagramReceiver
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.pairs.failed_pairs import FailedPairs
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.steering import Steering
from bluebridge.device.rdma.vocabulary import DATAGRAMS, SERVICES, PairState
from bluebridge.device.refusal import Reason, Refusal
from bluebridge.device.throttle import Throttle

QPN_BITS: Final = 24
QPN_MASK: Final = (1 << QPN_BITS) - 1
PORTION: Final = 128
"""Number of queue pairs freed or rerouted in one turn of the loop, which takes a millisecond."""


class QueuePairs:
    """The queue pairs of one HCA, by their full 24-bit number; `failed` are those in ERR.

    There may be `limit` of them at a time. Of those whose numbers are equal in `index_bits` bits
    there is one at most, since a face may keep their contexts in a table of that size.
    """

    def __init__(
        self, bus: HostBus, regions: MemoryRegions, steering: Steering, limit: int
    ) -> None:
        self.limit = limit
        self.index_bits = QPN_BITS
        self._bus = bus
        self._steering = steering
        self._regions = regions
        self._pairs: dict[int, QueuePair] = {}
        self._leaving: list[QueuePair] = []  # forgotten, not yet free
        self._indices: dict[int, int] = {}  # index in the context table to full number
        self._foreign_messages = Throttle()
        self._datagrams = DatagramReceiver(self._pairs.get, steering)
        self._frames = FrameReceiver(self._pairs.get, steering)
        self.failed = FailedPairs(bus)

    def __len__(self) -> int:
        return len(self._pairs)

    def reset(self) -> None:
        """Forget all queue pairs, which complete nothing and do no DMA from now on.

        Their windows are left to the regions, which are reset, too.
        """
        pairs = list(self._pairs.values())
        self._pairs.clear()
        self._indices.clear()
        self.failed.clear()
        for qp in pairs:
            qp.state = PairState.RST
            qp.engine.stop()
        self._discard(pairs)

    def get(self, qpn: int) -> QueuePair | None:
        """Return the queue pair with exactly this number, generation bits included, or None."""
        return self._pairs.get(qpn)

    def numbers(self) -> list[int]:
        """The numbers of all queue pairs, oldest first."""
        return list(self._pairs)

    def _index(self, qpn: int) -> int:
        """Return the place of a queue pair in the context table."""
        return qpn & ((1 << self.index_bits) - 1)

    def check_free(self, qpn: int) -> None:
        """Raise `Refusal` unless a queue pair with this number may be made.

        BAD_PAIR_STATE when there is one, BAD_STATE when another has its place in the context table,
        LIMIT when there are `limit`.
        """
        index = self._index(qpn)
        if qpn in self._pairs:
            raise Refusal(Reason.BAD_PAIR_STATE, f"QP {qpn:#x} is not in RST")
        if index in self._indices:
            raise Refusal(Reason.BAD_STATE, f"QP {self._indices[index]:#x} has this slot")
        if len(self._pairs) >= self.limit:
            raise Refusal(Reason.LIMIT, f"{self.limit} queue pairs are in use")

    def add(self, qp: QueuePair) -> None:
        """Add a queue pair and set it to INIT."""
        self._pairs[qp.qpn] = qp
        self._indices[self._index(qp.qpn)] = qp.qpn
        qp.set_state(PairState.INIT)

    def destroy(self, qpn: int) -> None:
        """Remove a queue pair from the table at once; it goes to RST."""
        qp = self._pairs.pop(qpn, None)
        if qp is None:
            return
        self._indices.pop(self._index(qpn), None)
        self.failed.remove(qpn)
        self._steering.forget(qpn)
        qp.state = PairState.RST
        qp.engine.stop()
        qp.sq = qp.rq = None  # their pages are free for others at once
        self._discard([qp])
        self._regions.forget_queue_pair(qpn)

    def _discard(self, pairs: list[QueuePair]) -> None:
        """Free queue pairs soon, `PORTION` of them per turn, as 2^16 of them take long."""
        if pairs and not self._leaving:
            self._bus.call_next_turn(self._dismantle)
        self._leaving += pairs

    def _dismantle(self) -> None:
        for _ in range(min(PORTION, len(self._leaving))):
            self._leaving.pop().dismantle()
        if self._leaving:
            self._bus.call_next_turn(self._dismantle)

    def reroute(self, port: Port) -> None:
        """Update the routes of a port's queue pairs after its addresses have changed."""
        for _ in self.reroute_in_portions(port):
            pass

    def reroute_in_portions(self, port: Port) -> Iterator[None]:
        """Do the same, and yield after each `PORTION` of all queue pairs; some may be gone then."""
        for count, (number, qp) in enumerate(list(self._pairs.items()), 1):
            routed = qp.connected or qp.role in DATAGRAMS
            if routed and qp.port is port and self._pairs.get(number) is qp:
                qp.reroute()
            if not count % PORTION:
                yield

    # -- the fabric ---------------------------------------------------------------------------

    def receive(self, port: Port, message: Message | ConnectedPacket) -> int:
        """Hand a message of a port's fabric to its queue pairs, or drop it if it is for none.

        Returns the copies made of a datagram to a group or of frames (`FabricPort.receive`).
        """
        if isinstance(message, (Request, Response)):
            qp = self._pairs.get(message.target_qpn)
            if qp is None or not qp.connected:
                return 0
            if not self._comes_from_peer(qp, port, message.route):
                return 0
            if isinstance(message, Request):
                qp.responder.receive(message)
            else:
                qp.engine.receive(message)
        elif isinstance(message, Datagram):
            return self._datagrams.receive(port, message)
        elif isinstance(message, Frames):
            return self._frames.receive(port, message)
        else:
            self._receive_packet(port, message)
        return 0

    def _receive_packet(self, port: Port, message: ConnectedPacket) -> None:
        qp, packet = self._pairs.get(message.target_qpn), message.packet
        if qp is None or not qp.connected or not self._comes_from_peer(qp, port, message.route):
            return
        engine, responder = qp.engine, qp.responder
        if packet.service != SERVICES[qp.role]:
            if packet.service == CONGESTION_SERVICE:
                engine.reported()
            return
        if message.marked:
            engine.marked()
        if packet.opcode in ANSWERS:
            engine.receive_packet(packet)
        else:
            responder.receive_packet(packet)

    def _comes_from_peer(self, qp: QueuePair, port: Port, route: Route) -> bool:
        """Return True if a message came on the path of a connection, else log that it did not.

        The path is that of the context in both directions, the version of RoCE included; hop
        limit, traffic class and flow label are the sender's own affair.
        """
        own = qp.route
        if (
            route.smac != own.dmac
            or route.sgid != own.dgid
            or route.dgid != own.sgid
            or route.roce != own.roce
            or route.vlan != own.vlan
            or qp.port is not port
            or (route.pkey != own.pkey and not partitions_match(route.pkey, own.pkey))
        ):
            self._note_foreign(qp, route)
            return False
        return True

    def _note_foreign(self, qp: QueuePair, route: Route) -> None:
        """Log that a message for a connection was dropped because its peer did not send it.

        Queue pair numbers, PSNs and keys are not secrets; the path in the context says who the
        peer is (InfiniBand vol. 1, 9.6.1.2).
        """
        if qp.state is not PairState.INIT and self._foreign_messages.admits():
            version = qp.route.roce
            why = "not its peer" if route.roce == version else f"RoCE v{route.roce}, not v{version}"
            self._bus.tell(
                Fact.FOREIGN_MESSAGE,
                qpn=qp.qpn,
                mac=route.smac.hex(":"),
                reason=why,
                count=self._foreign_messages.count,
            )
