"""Faults by name of a ConnectX-5: its commands, queues and events."""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device import cards
from bluebridge.device.armed_faults import ArmedFault
from bluebridge.device.layout.faults import Effect, NamedFault
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.cqe import VENDOR_SYNDROMES, Syndrome
from bluebridge.device.layout.mlx5.event_queues import DATA_BYTES, DATA_OFFSET, QUEUE_EQE, EventType
from bluebridge.device.layout.mlx5.faults import BY_NAME
from bluebridge.device.layout.mlx5.init_segment import MSIX_VECTORS
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.rings.completion_ring import ACCESS, OVERRUN
from bluebridge.device.server.card_faults import CardFaults
from bluebridge.device.server.fault_values import number_in

RQ, SQ, SRQ = 1, 2, 3
"""Kinds of queues in events about them; that of a queue pair is 0."""


class ConnectX5Faults(CardFaults):
    """The faults of one ConnectX-5, whose SQs and RQs count as queue pairs of type ETH."""

    title = cards.CONNECTX5.title
    table = BY_NAME
    opcodes = Opcode
    statuses = Status
    events = EventType
    syndromes = Syndrome
    vectors = MSIX_VECTORS

    def __init__(self, hca: Hca) -> None:
        adapter = hca.adapter
        regions = adapter.objects.keys.regions
        super().__init__(adapter.bus, adapter.ports[0], adapter.faults, regions)
        self._adapter = adapter

    def number(self, word: str, text: str) -> int:
        number, objects = number_in(word, text), self._adapter.objects
        if word == "qpn" and self._adapter.role_of(number) is None:
            raise ValueError(
                f"there is no QP, SQ or RQ {number:#x}: `bluebridge show GUEST` qp, sq and rq "
                "list them"
            )
        found = {"cqn": objects.cqs.get, "srqn": objects.rdma.srqs.get}.get(word)
        if found is not None and found(number) is None:
            kind = word.removesuffix("n")
            raise ValueError(
                f"there is no {kind.upper()} {number:#x}: `bluebridge show GUEST {kind}` lists them"
            )
        return number

    def vendor(self, status: int) -> int:
        return VENDOR_SYNDROMES[Syndrome(status)]

    def begin(self, fault: ArmedFault, values: Mapping[str, str]) -> None:
        if fault.effect is Effect.DOORBELL_IGNORED:
            self._deafen(fault)
        elif fault.effect is Effect.INTERRUPT_LOST:
            fault.undo = lambda: self._adapter.eqs.catch_up(fault.target)
        elif fault.effect is Effect.KEY_LOCKED:
            self.lock(fault)

    def _ring(self, number: int) -> SendRing | None:
        objects = self._adapter.objects
        queue = objects.sqs.get(number) or objects.rdma.pairs.get(number)
        return queue.sq if queue is not None and isinstance(queue.sq, SendRing) else None

    def _deafen(self, fault: ArmedFault) -> None:
        """Let a queue ignore doorbells; if it is there afterwards, it takes what was posted."""
        ring = self._ring(fault.target)
        if ring is None:
            raise ValueError(f"{fault.target:#x} has no send queue: `bluebridge show GUEST sq`, qp")
        if ring.deaf:
            raise ValueError(
                f"{fault.target:#x} ignores its doorbells already: `bluebridge fault GUEST armed`"
            )
        ring.deaf = True

        def hear() -> None:
            if self._ring(fault.target) is ring:
                ring.deaf = False
                ring.go_on()

        fault.undo = hear

    def happen(self, named: NamedFault, values: Mapping[str, str]) -> None:
        word = named.needs[0]
        number = self.number(word, values[word])
        if word == "cqn":
            queue = self._adapter.objects.cqs.get(number)
            assert queue is not None
            if named.effect is Effect.CQ_OVERRUN:
                queue.fail(OVERRUN)
            else:
                queue.report(ACCESS)
            return
        objects = self._adapter.objects
        kind = RQ * (number in objects.rqs) or SQ * (number in objects.sqs)
        event = QUEUE_EQE.pack(kind=SRQ if word == "srqn" else kind, number=number)
        data = bytes(event[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._adapter.eqs.post_async(EventType[values["event"]], data)
