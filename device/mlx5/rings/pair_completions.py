"""Completions and asynchronous events of queue pairs (layout: `device.layout.mlx5.cqe`)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from time import monotonic_ns
from typing import Final

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.layout.mlx5.cqe import (
    GRH_IN_BUFFER,
    ROCE_HEADER_SHIFT,
    CqeOpcode,
    RoceHeader,
)
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import DEFAULT_PKEY, GRH_SIZE, Op
from bluebridge.device.mlx5.rings.queue_completions import (
    QP_EVENT,
    RESPONSE_ERROR,
    QueueCompletions,
)
from bluebridge.device.mlx5.rings.shared_queues import SharedReceiveRings
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.rdma.pairs.queues import Received
from bluebridge.device.rdma.vocabulary import CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

RESPONSE_CQE: Final = Struct(">24xIBBHII4xIQIHxB")

_SOLICITED: Final = 1 << 1
_RESPONSES: Final = {
    Op.SEND: CqeOpcode.RESPONSE_SEND << 4,
    Op.SEND_IMM: CqeOpcode.RESPONSE_SEND_IMM << 4,
    Op.SEND_INV: CqeOpcode.RESPONSE_SEND_INV << 4,
    Op.WRITE_IMM: CqeOpcode.RESPONSE_WRITE_IMM << 4,
}
_VLAN_PRESENT: Final = 1
_GONE: Final = -1
_IPV4_GID: Final = bytes(10) + b"\xff\xff"


class PairCompletions(QueueCompletions):
    """The writer of the completions and asynchronous events of one queue pair.

    Its entries name it by its number and by its `user_index`; a receive of XRC names the SRQ.
    `pkey`: those of receives tell the P_Key, as software of QP1 wants.
    """

    def __init__(
        self,
        around: Surroundings,
        srqs: SharedReceiveRings,
        number: int,
        send_cqn: int,
        receive_cqn: int,
        user_index: int,
        *,
        pkey: bool = False,
    ) -> None:
        super().__init__(around, number, QP_EVENT, send_cqn, user_index)
        self._srqs = srqs
        self._receive_cqn = receive_cqn
        self._pkey = DEFAULT_PKEY if pkey else 0

    def complete_receive(
        self,
        index: int,
        op: Op,
        length: int,
        source: int,
        immediate: int,
        solicited: bool,
        cqn: int = -1,
    ) -> None:
        shared = cqn >= 0
        user = self._index_of(source) if shared else self._user_index
        if user < 0:
            return
        cqe = RESPONSE_CQE.pack(
            0 if shared else source, 0, 0, 0, user, immediate,
            length, monotonic_ns(), self._number, index & 0xFFFF,
            _RESPONSES[op] | _SOLICITED * solicited,
        )  # fmt: skip
        self._post(cqn if shared else self._receive_cqn, cqe, solicited)

    def complete_datagram(
        self,
        index: int,
        message: Datagram,
        link: LinkLayer,
        path_bits: int,
        pkey_index: int,
        found: tuple[int, int] | None,
    ) -> None:
        """Complete the receive of a datagram; its length counts a GRH of 40 bytes.

        The kind of the network header stands in the entry: software of RoCE v2 does not look at
        the header itself (Linux `ib/cq.c: handle_responder`).
        """
        route, immediate = message.route, message.immediate
        if route.roce == 1:
            header = RoceHeader.GRH
        else:
            ipv4 = route.sgid.startswith(_IPV4_GID)
            header = RoceHeader.IPV4 if ipv4 else RoceHeader.IPV6
        tagged = route.vlan != NO_VLAN
        cqe = RESPONSE_CQE.pack(
            GRH_IN_BUFFER | header << ROCE_HEADER_SHIFT | message.source_qpn,
            0,
            _VLAN_PRESENT * tagged,
            route.service_level << 13 | route.vlan & 0xFFF if tagged else 0,
            self._user_index,
            self._pkey if immediate is None else immediate,
            GRH_SIZE + len(message.payload),
            monotonic_ns(),
            self._number,
            index & 0xFFFF,
            _RESPONSES[Op.SEND if immediate is None else Op.SEND_IMM]
            | _SOLICITED * message.solicited,
        )
        self._post(self._receive_cqn, cqe, message.solicited)

    def complete_frames(
        self, receives: Sequence[tuple[ReceiveWork, bytes]], received: Sequence[Received]
    ) -> None:
        """Do nothing: frames are for queues of their own."""

    def fail_receive(
        self, index: int, status: CompletionStatus, cqn: int = -1, source: int = 0
    ) -> None:
        self.diagnostics.receive_failed(status)
        shared = cqn >= 0
        user = self._index_of(source) if shared else self._user_index
        if user < 0:
            return
        cqe = self._error(user, index, status, RESPONSE_ERROR)
        self._post(cqn if shared else self._receive_cqn, cqe, error=True)

    def _index_of(self, srqn: int) -> int:
        """Return what completions name an SRQ by; `_GONE` for one that was destroyed since."""
        srq = self._srqs.get(srqn)
        return _GONE if srq is None else srq.shown_index
