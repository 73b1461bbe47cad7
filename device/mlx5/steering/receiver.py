"""The receiving of frames: flow tables, TIRs, what completions tell of them, rings.

Linux `core/en_rx.c: mlx5e_build_rx_skb, mlx5e_handle_csum`.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Final

from bluebridge.device.ethernet.receiver import Batch
from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.frames.frame import (
    CHECKSUM_OFFSET,
    ONES,
    TCP,
    UDP,
    Frame,
    FrameHeaders,
    ones_sum,
)
from bluebridge.device.frames.receiving import TrainForms
from bluebridge.device.layout.mlx5.cqe import Checked, L3Header, L4Header
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_MAC_CONTROL,
    ETHERTYPE_ROCE,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
)
from bluebridge.device.mlx5.rings.frame_queues import ReceiveQueueObject
from bluebridge.device.mlx5.steering.matching import number_of
from bluebridge.device.mlx5.steering.spreading import Tir
from bluebridge.device.mlx5.steering.tables import FlowTables, Target
from bluebridge.device.rdma.pairs.queues import CUSTOMER_TAG, NO_TAG, Received
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import RECEIVING

OWN_UNICAST: Final = 1
"""The kind of own frames that come back, in a TIR that takes them."""

_TYPE_AT: Final = 12
_ROCE: Final = ETHERTYPE_ROCE.to_bytes(2, "big")
_MAC_CONTROL: Final = ETHERTYPE_MAC_CONTROL.to_bytes(2, "big")
_VLAN: Final = ETHERTYPE_VLAN.to_bytes(2, "big")
_L3: Final = {4: int(L3Header.IPV4) << 2, 6: int(L3Header.IPV6) << 2}
_TCP_FLAGS_AT: Final = 13
_ACK: Final = 0x10
_L4_SHIFT: Final = 4


class FrameSteering:
    """Gives the frames of the fabric to the receive queues of one adapter.

    `tirs` and `queues` are those that there are, by their numbers.
    """

    def __init__(
        self, tables: FlowTables, tirs: dict[int, Tir], queues: dict[int, ReceiveQueueObject]
    ) -> None:
        self._tables = tables
        self._tirs = tirs
        self._queues = queues
        self.missed: dict[int, int] = {}
        """Frames that found no receive, by the counter set of their queue."""

    def receive(self, port: Port, message: Frames) -> int:
        """Deliver frames that came in by `port`, or that it sent to itself.

        Returns in how many receive rings they were wanted, each frame counted once per ring.
        """
        copies, arrived = 0, monotonic_ns()
        own = message.own_qpn >= 0
        batches: dict[int, Batch] = {}
        for train in message.trains:
            first = train.frames[0]
            kind = first[_TYPE_AT:HEADER_SIZE]
            if len(first) < HEADER_SIZE or kind == _ROCE:
                continue
            if kind == _MAC_CONTROL:
                port.flow.receive(first)
                continue
            headers = FrameHeaders(first)
            octets = sum(map(len, train.frames))
            number = number_of(first, headers)
            targets = self._tables.targets(number, len(train.frames), octets)
            wanted = 0
            forms = TrainForms(train.frames)
            for target in targets:
                wanted += self._assign(port, train, headers, forms, target, own, arrived, batches)
            copies += wanted * len(train.frames)
            port.counters.receive(train.frames, wanted=wanted > 0)
        for batch in batches.values():
            self._deliver(port, batch)
        return copies

    def _deliver(self, port: Port, batch: Batch) -> None:
        counters = port.counters.rx
        before = counters.dropped
        port.flow.accept(batch)
        queue = batch.qp
        if counters.dropped > before and isinstance(queue, ReceiveQueueObject):
            lost = counters.dropped - before
            self.missed[queue.counter_set] = self.missed.get(queue.counter_set, 0) + lost

    def _assign(
        self,
        port: Port,
        train: Train,
        headers: FrameHeaders,
        forms: TrainForms,
        target: Target,
        own: bool,
        arrived: int,
        batches: dict[int, Batch],
    ) -> int:
        """Put a train into the batch of the ring that a TIR chooses; returns 1 if there is one."""
        first = train.frames[0]
        tir = self._tirs.get(target.tirn)
        if tir is None or (own and not tir.loopback & OWN_UNICAST):
            return 0
        choice = tir.choose(first, headers)
        queue = None if choice is None else self._queues.get(choice.rqn)
        if choice is None or queue is None or queue.state not in RECEIVING:
            return 0
        batch = batches.get(choice.rqn)
        if batch is None:
            batch = batches[choice.rqn] = Batch(queue)
        strip = queue.strip_vlan and first[_TYPE_AT:HEADER_SIZE] == _VLAN
        tag = int.from_bytes(first[HEADER_SIZE : HEADER_SIZE + 2], "big") if strip else 0
        kind = CUSTOMER_TAG if strip else NO_TAG
        known: dict[int, Received] = {}  # frames of one length have one sum
        for frame, form in zip(train.frames, forms.frames(strip, queue.keep_fcs), strict=True):
            told = known.get(len(frame))
            if told is None or not train.good:
                own_headers = headers if frame is first else FrameHeaders(frame)
                told = known[len(frame)] = Received(
                    frame, own_headers, train.good, kind, tag, strip,
                    choice.value, choice.hashed, target.tag, arrived,
                )  # fmt: skip
                told.words = findings(frame, own_headers, train.good)
            batch.add([form], told)
        return 1


def findings(frame: Frame, headers: FrameHeaders, good: bool) -> tuple[int, int]:
    """Return what is right of a frame (`Checked`) and above it its headers, and its sum.

    The sum is that of all bytes from the network header to the end of the packet: drivers add
    VLAN tags before it and padding behind it themselves. `good`: the sending adapter computed the
    checksums itself; then no pass over the bytes is needed, as a right checksum makes header and
    payload sum up to zero.
    """
    if not headers.version:
        return int(Checked.L2), 0
    kinds = _L3[headers.version] | _transport(frame, headers) << _L4_SHIFT
    checked = int(Checked.L2)
    if good and headers.whole:
        rest = ones_sum(frame[headers.network : headers.transport]) - headers.pseudo_sum(frame)
        checked |= Checked.L3 | Checked.L4
        return checked | kinds << 8, rest % ONES or ONES
    total = ones_sum(frame[headers.network : headers.end])
    front = ones_sum(frame[headers.network : headers.transport])
    if headers.version == 6 or not front:
        checked |= Checked.L3
    sums_up = headers.whole and not (total - front + headers.pseudo_sum(frame)) % ONES
    if sums_up and _has_checksum(frame, headers):
        checked |= Checked.L4
    return checked | kinds << 8, total or ONES


def _has_checksum(frame: Frame, headers: FrameHeaders) -> bool:
    """Return False for UDP without a checksum."""
    field = headers.transport + CHECKSUM_OFFSET[headers.protocol]
    return headers.protocol != UDP or any(frame[field : field + 2])


def _transport(frame: Frame, headers: FrameHeaders) -> int:
    """Return the kind of the transport header (`L4Header`)."""
    if not headers.whole:
        return int(L4Header.NONE)
    if headers.protocol != TCP:
        return int(L4Header.UDP)
    start = headers.transport
    if not frame[start + _TCP_FLAGS_AT] & _ACK:
        return int(L4Header.TCP_NO_ACK)
    data = start + (frame[start + _TCP_FLAGS_AT - 1] >> 4) * 4 < headers.end
    return int(L4Header.TCP_ACK_AND_DATA if data else L4Header.TCP_ACK_NO_DATA)
