"""The objects of one adapter that its RDMA device is made of."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.queue_pairs import QPC, QpState, Receives
from bluebridge.device.mlx5.numbers import Numbers, Table
from bluebridge.device.mlx5.objects.key_updates import KeyUpdater
from bluebridge.device.mlx5.objects.page_faults import PageFaults, PairPaging
from bluebridge.device.mlx5.objects.pairs import STATES, CardPair, MadePair
from bluebridge.device.mlx5.rings.pair_completions import PairCompletions
from bluebridge.device.mlx5.rings.send_ring import SendRing
from bluebridge.device.mlx5.rings.shared_queues import SharedReceiveRings
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.mlx5.steering.receiver import FrameSteering
from bluebridge.device.queue_pairs import QueuePairs
from bluebridge.device.rdma.ports.counters import Diagnostics
from bluebridge.device.rdma.vocabulary import Role

MAX_PAIRS: Final = 1 << 17
MAX_XRC_DOMAINS: Final = 1 << 8


class RdmaObjects:
    """Queue pairs, shared receive queues, XRC domains and groups of one adapter.

    `numbers` are those of queue pairs and of SQs and RQs. `sets` are the counters of troubles, by
    counter set; those of all queue pairs are the port's, too.
    """

    def __init__(
        self,
        around: Surroundings,
        numbers: Numbers,
        network: NetworkSettings,
        steering: FrameSteering,
        updater: KeyUpdater,
    ) -> None:
        self._updater = updater
        self._around = around
        self._network = network
        self.groups = steering.groups
        self.srqs = SharedReceiveRings(around)
        self.pairs = QueuePairs(around.bus, around.regions, steering, MAX_PAIRS)
        self.made: Table[MadePair] = Table("QP", numbers)
        self.xrcds = Numbers("XRC domain", 1, MAX_XRC_DOMAINS)
        self.sets: dict[int, Diagnostics] = {}
        self.page_faults = PageFaults(around.bus, around.eqs)

    def reset(self) -> None:
        """Forget all objects."""
        self.pairs.reset()
        self.page_faults.reset()
        self.made.reset()
        self.srqs.reset()
        self.groups.reset()
        self.xrcds.reset()
        self.sets.clear()

    # -- queue pairs --------------------------------------------------------------------------

    def create_pair(self, data: bytes) -> int:
        """Make a queue pair in RST (CREATE_QP); returns its number. Raises `Refused`."""
        made = MadePair(self._around, data)
        if len(self.made) >= MAX_PAIRS:
            raise Refused(Status.LIM_ERR, f"{MAX_PAIRS} queue pairs")
        self._check_queues(made)
        return self.made.add(made)

    def _check_queues(self, made: MadePair) -> None:
        get, context = QPC.get, made.context
        if made.sends is not None:
            self._around.cqs.known(get(context, "cqn_send"))
        kind = get(context, "rq_type")
        if kind != Receives.NONE:
            self._around.cqs.known(get(context, "cqn_recv"))
        if kind == Receives.SHARED:
            self.srqs.known(get(context, "srqn"))

    def pair(self, qpn: int, otherwise: Status = Status.BAD_RES) -> CardPair | None:
        """Return a queue pair outside of RST; None in RST.

        Raises `Refused` (BAD_RES, or what is said).
        """
        self.made.known(qpn, otherwise)
        found = self.pairs.get(qpn)
        return found if isinstance(found, CardPair) else None

    def state(self, qpn: int) -> QpState:
        """Return the state of a queue pair; raises `Refused` (BAD_RES)."""
        pair = self.pair(qpn)
        return QpState.RST if pair is None else STATES[pair.state]

    def initialise(self, qpn: int, context: bytearray) -> None:
        """Take a queue pair from RST to INIT with a merged context."""
        made, get = self.made.known(qpn), QPC.get
        completions = PairCompletions(
            self._around,
            self.srqs,
            qpn,
            get(context, "cqn_send"),
            get(context, "cqn_recv"),
            get(context, "user_index"),
            pkey=made.role is Role.GSI,
        )
        pair = made.make(
            qpn, context, completions, self.srqs, self._troubles, self.pairs.failed.add,
            self._network, self._updater,
        )  # fmt: skip
        pair.paging = PairPaging(self.page_faults, pair)
        self.pairs.add(pair)
        if made.role is Role.GSI:
            self._around.port.tables.gsi_qpn = qpn

    def to_reset(self, qpn: int) -> None:
        """Take a queue pair to RST: no completion, no DMA from now on. Raises `Refused`.

        Firmware 16.27 of a ConnectX-5 says BAD_RES_STATE for a number that is none of a queue pair,
        here and to its end (linux-pci, January 2022, "PCI: Reset IOV state on FLR to PF").
        """
        self.made.known(qpn, Status.BAD_RES_STATE)
        self.pairs.destroy(qpn)
        self.page_faults.forget(qpn)
        tables = self._around.port.tables
        if tables.gsi_qpn == qpn:
            tables.gsi_qpn = -1

    def destroy_pair(self, qpn: int) -> None:
        """Destroy a queue pair; raises `Refused` (BAD_RES_STATE)."""
        self.to_reset(qpn)
        self.groups.leave(qpn)
        self.made.remove(qpn)

    def to_error(self, qpn: int) -> None:
        """Take a queue pair to ERR; raises `Refused`: BAD_RES_STATE, BAD_QP_STATE in RST."""
        pair = self.pair(qpn, Status.BAD_RES_STATE)
        if pair is None:
            raise Refused(Status.BAD_QP_STATE, f"QP {qpn:#x} is in RST")
        pair.enter_error()

    def _troubles(self, number: int) -> Diagnostics:
        return self.sets.get(number, self._around.port.diagnostics)

    def ring_of(self, qpn: int) -> SendRing | None:
        """Return the entries of a queue pair outside of RST; None if there are none."""
        pair = self.pairs.get(qpn)
        return pair.sq if pair is not None and isinstance(pair.sq, SendRing) else None
