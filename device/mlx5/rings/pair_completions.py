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
    VENDOR_SYNDROMES,
    CqeOpcode,
    RoceHeader,
    Syndrome,
)
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import DEFAULT_PKEY, GRH_SIZE, Op
from bluebridge.device.mlx5.rings.message_requests import SEND_OPCODES
from bluebridge.device.mlx5.rings.queue_completions import QP_EVENT, QueueCompletions
from bluebridge.device.mlx5.rings.shared_queues import SharedReceiveRings
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.rdma.pairs.queues import Received
from bluebridge.device.rdma.vocabulary import CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork

REQUEST_CQE: Final = Struct(">32xI8xIQIHxB")
RESPONSE_CQE: Final = Struct(">24xIBBHII4xIQIHxB")
ERROR_CQE: Final = Struct(">32xI18xBBIHxB")

_REQUEST: Final = CqeOpcode.REQUEST << 4
_REQUEST_ERROR: Final = CqeOpcode.REQUEST_ERROR << 4
_RESPONSE_ERROR: Final = CqeOpcode.RESPONSE_ERROR << 4
_SOLICITED: Final = 1 << 1
_RESPONSES: Final = {
    Op.SEND: CqeOpcode.RESPONSE_SEND << 4,
    Op.SEND_IMM: CqeOpcode.RESPONSE_SEND_IMM << 4,
    Op.SEND_INV: CqeOpcode.RESPONSE_SEND_INV << 4,
    Op.WRITE_IMM: CqeOpcode.RESPONSE_WRITE_IMM << 4,
}
_ERRORS: Final = {
    status: (VENDOR_SYNDROMES[Syndrome[status.name]], int(Syndrome[status.name]))
    for status in CompletionStatus
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
        super().__init__(around, number, QP_EVENT)
        self._srqs = srqs
        self._send_cqn = send_cqn
        self._receive_cqn = receive_cqn
        self._user_index = user_index
        self._pkey = DEFAULT_PKEY if pkey else 0
        self._collected: list[tuple[int, int, int]] = []

    # -- sends --------------------------------------------------------------------------------

    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        self._bus.concern(self._number, index)
        self._post(self._send_cqn, self._sent(index, operation, length, left or monotonic_ns()))

    def fail_send(self, index: int, status: CompletionStatus) -> None:
        self._bus.concern(self._number, index)
        self.diagnostics.send_failed(status)
        cqe = self._error(self._user_index, index, status, _REQUEST_ERROR)
        self._post(self._send_cqn, cqe, error=True)

    def collect_send(self, index: int, operation: int, length: int) -> None:
        self._collected.append((index, operation, length))

    def post_collected(self, left: int = 0) -> None:
        collected, self._collected = self._collected, []
        left = left or monotonic_ns()
        self._post_many(self._send_cqn, [self._sent(*one, left) for one in collected])

    def forget_collected(self) -> None:
        self._collected = []

    def _sent(self, index: int, operation: int, length: int, left: int) -> bytes:
        about = SEND_OPCODES[operation] << 24 | self._number
        return REQUEST_CQE.pack(self._user_index, length, left, about, index & 0xFFFF, _REQUEST)

    # -- receives -----------------------------------------------------------------------------

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
        cqe = self._error(user, index, status, _RESPONSE_ERROR)
        self._post(cqn if shared else self._receive_cqn, cqe, error=True)

    def _index_of(self, srqn: int) -> int:
        """Return what completions name an SRQ by; `_GONE` for one that was destroyed since."""
        srq = self._srqs.get(srqn)
        return _GONE if srq is None else srq.shown_index

    def _error(self, user: int, index: int, status: CompletionStatus, opcode: int) -> bytes:
        vendor, syndrome = _ERRORS[status]
        return ERROR_CQE.pack(user, vendor, syndrome, self._number, index & 0xFFFF, opcode)
