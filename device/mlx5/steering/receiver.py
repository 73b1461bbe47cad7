"""The steering: of frames by flow tables and TIRs, of datagrams by groups of queue pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.fabric.messages import Datagram, Frames, Train
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.rules import Member
from bluebridge.device.mlx5.rings.frame_queues import ReceiveQueueObject
from bluebridge.device.mlx5.steering.groups import Groups
from bluebridge.device.mlx5.steering.matching import number_of
from bluebridge.device.mlx5.steering.spreading import Tir
from bluebridge.device.mlx5.steering.tables import FlowTables, Target
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.steering import Delivery, Steering
from bluebridge.device.rdma.vocabulary import RECEIVING

OWN_UNICAST, OWN_GROUPS = 1, 2
"""Kinds of frames of its own transport domain, in a TIR that takes them."""
UNKNOWN_DOMAIN, FROM_THE_WIRE = 0, -1


class FrameSteering(Steering):
    """The steering of one adapter.

    `tirs` and `queues` are those that there are, by their numbers; `domain_of` returns the
    transport domain of an SQ, which a TIR takes no frames from by itself if it is in it, too.
    """

    def __init__(
        self,
        tables: FlowTables,
        tirs: dict[int, Tir],
        queues: dict[int, ReceiveQueueObject],
        domain_of: Callable[[int], int],
    ) -> None:
        self._domain_of = domain_of
        self._tables = tables
        self._tirs = tirs
        self._queues = queues
        self.groups = Groups()
        self.missed: dict[int, int] = {}
        """Frames that found no receive, by the counter set of their queue."""

    def frame(
        self, port: Port, train: Train, headers: FrameHeaders, message: Frames
    ) -> Sequence[Delivery]:
        first, own = train.frames[0], FROM_THE_WIRE
        if message.own_qpn >= 0:
            own = self._domain_of(message.own_qpn)
        octets = sum(map(len, train.frames))
        targets = self._tables.targets(number_of(first, headers), len(train.frames), octets)
        deliveries = []
        for target in targets:
            delivery = self._delivery(target, first, headers, own)
            if delivery is not None:
                deliveries.append(delivery)
        return deliveries

    def _delivery(
        self, target: Target, first: bytes, headers: FrameHeaders, own: int
    ) -> Delivery | None:
        """Return the ready queue that a TIR chooses; None without one."""
        tir = self._tirs.get(target.tirn)
        if tir is None:
            return None
        kind = OWN_GROUPS if first[0] & 1 else OWN_UNICAST
        if own in (UNKNOWN_DOMAIN, tir.domain) and not tir.loopback & kind:
            return None
        choice = tir.choose(first, headers)
        queue = None if choice is None else self._queues.get(choice.rqn)
        if choice is None or queue is None or queue.state not in RECEIVING:
            return None
        return Delivery(choice.rqn, choice.value, choice.hashed, target.tag)

    def miss(self, qpn: int, frames: int) -> None:
        queue = self._queues.get(qpn)
        if queue is not None:
            self.missed[queue.counter_set] = self.missed.get(queue.counter_set, 0) + frames

    def group(self, port: Port, message: Datagram) -> Sequence[Member]:
        return self.groups.of(message.route.dgid)

    def datagram(self, port: Port, message: Datagram) -> Sequence[Member] | None:
        return None

    def forget(self, qpn: int) -> None:
        """Do nothing: tables name TIRs and no queues, and groups outlive a reset of members."""
