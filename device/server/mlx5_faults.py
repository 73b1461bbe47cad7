"""Faults by name of a ConnectX-5: its commands, queues and events."""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device import cards
from bluebridge.device.armed_faults import ArmedFault
from bluebridge.device.layout.faults import USERS, Effect, NamedFault
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.cqe import Syndrome
from bluebridge.device.layout.mlx5.event_queues import EventType
from bluebridge.device.layout.mlx5.faults import BY_NAME
from bluebridge.device.layout.mlx5.init_segment import MSIX_VECTORS
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.rings.completion_ring import ACCESS, OVERRUN
from bluebridge.device.server.card_faults import CardFaults
from bluebridge.device.server.fault_values import number_in


class ConnectX5Faults(CardFaults):
    """The faults of one ConnectX-5, whose SQs and RQs count as queue pairs of frames."""

    title = cards.CONNECTX5.title
    table = BY_NAME
    opcodes = Opcode
    statuses = Status
    events = EventType
    syndromes = Syndrome
    vectors = MSIX_VECTORS
    users = (*USERS, "ETH")

    def __init__(self, hca: Hca) -> None:
        adapter = hca.adapter
        super().__init__(adapter.bus, adapter.ports[0], adapter.faults)
        self._adapter = adapter

    def number(self, word: str, text: str) -> int:
        number, objects = number_in(word, text), self._adapter.objects
        if word == "qpn" and self._adapter.role_of(number) is None:
            raise ValueError(
                f"there is no SQ or RQ {number:#x}: `bluebridge show GUEST sq` and `rq` list them"
            )
        if word == "cqn" and objects.cqs.get(number) is None:
            raise ValueError(f"there is no CQ {number:#x}: `bluebridge show GUEST cq` lists them")
        return number

    def vendor(self, status: int) -> int:
        return 0

    def begin(self, fault: ArmedFault, values: Mapping[str, str]) -> None:
        if fault.effect is Effect.DOORBELL_IGNORED:
            self._deafen(fault)
        elif fault.effect is Effect.INTERRUPT_LOST:
            fault.undo = lambda: self._adapter.eqs.catch_up(fault.target)

    def _deafen(self, fault: ArmedFault) -> None:
        """Let an SQ ignore doorbells; if it is there afterwards, it takes what was posted."""
        queues = self._adapter.objects.sqs
        queue = queues.get(fault.target)
        if queue is None:
            raise ValueError(f"{fault.target:#x} is no SQ: `bluebridge show GUEST sq` lists them")
        if queue.ring.deaf:
            raise ValueError(
                f"SQ {fault.target:#x} ignores its doorbells already: `bluebridge fault GUEST "
                "armed`"
            )
        queue.ring.deaf = True

        def hear() -> None:
            if queues.get(fault.target) is queue:
                queue.ring.deaf = False
                queue.ring.go_on()

        fault.undo = hear

    def happen(self, named: NamedFault, values: Mapping[str, str]) -> None:
        queue = self._adapter.objects.cqs.get(self.number("cqn", values["cqn"]))
        assert queue is not None
        if named.effect is Effect.CQ_OVERRUN:
            queue.fail(OVERRUN)
        else:
            queue.report(ACCESS)
