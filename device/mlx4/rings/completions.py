"""Completions and asynchronous events of queue pairs (layouts: `device.layout.mlx4.cqe`, `eqe`)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.frames.receiving import IS_IPV4, IS_IPV6, L4_GOOD, TAG_SIZE, findings
from bluebridge.device.layout.mlx4.cqe import GRH_PRESENT, IS_SEND_BIT, L4_CHECKED, OPCODE_ERROR
from bluebridge.device.layout.net.ethernet import HEADER_SIZE, NO_VLAN
from bluebridge.device.layout.net.roce import GRH_SIZE, Op
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.words import (
    EVENTS,
    FRAME_STATUSES,
    RECEIVE_OPCODES,
    SEND_OPCODES,
    SYNDROMES,
    VENDOR_SYNDROMES,
)
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queues import CUSTOMER_TAG, NO_TAG, Received
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork
from bluebridge.device.rings.posted_completions import PostedCompletions

CQE: Final = Struct(">III8xIH5xB")
DATAGRAM_CQE: Final = Struct(">IIIH6sIHH3xB")
FRAME_CQE: Final = Struct(">II4xH2xHBBIHH3xB")
ERROR_CQE: Final = Struct(">I20xHBB3xB")

_FINDINGS: Final = Struct(">HxB")
"""Layout behind the sender's LID: status bits, and how far the L4 checksum was checked."""
VLAN_PRESENT: Final = 1 << 29
SERVICE_VLAN_PRESENT: Final = 1 << 30
_ANY_IP: Final = IS_IPV4 | IS_IPV6
_TAG_BITS: Final = (0, VLAN_PRESENT, SERVICE_VLAN_PRESENT)
_GRH_PRESENT: Final = int(GRH_PRESENT)
_L4_CHECKED: Final = int(L4_CHECKED)
_IS_SEND_BIT: Final = int(IS_SEND_BIT)


class CompletionWriter(PostedCompletions):
    """The writer of the completions and asynchronous events of one queue pair.

    `send_cqn` and `recv_cqn` are the numbers of its completion queues.
    """

    def __init__(
        self,
        bus: HostBus,
        cqs: CompletionQueues,
        eqs: EventQueues,
        qpn: int,
        send_cqn: int,
        recv_cqn: int,
        faults: ArmedFaults,
    ) -> None:
        super().__init__(bus, faults, cqs, qpn)
        self._eqs = eqs
        self._send_cqn = send_cqn
        self._recv_cqn = recv_cqn
        self._collected: list[bytes] = []

    # -- sends --------------------------------------------------------------------------------

    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        self._bus.concern(self._number, index)
        opcode = _IS_SEND_BIT | SEND_OPCODES[operation]
        cqe = CQE.pack(self._number, 0, 0, length, index & 0xFFFF, opcode)
        self._post(self._send_cqn, cqe, when=left)

    def fail_send(self, index: int, status: CompletionStatus) -> None:
        self._bus.concern(self._number, index)
        self.diagnostics.send_failed(status)
        self._post(self._send_cqn, self._error(index, status, _IS_SEND_BIT), error=True)

    def collect_send(self, index: int, operation: int, length: int) -> None:
        opcode = _IS_SEND_BIT | SEND_OPCODES[operation]
        self._collected.append(CQE.pack(self._number, 0, 0, length, index & 0xFFFF, opcode))

    def post_collected(self, left: int = 0) -> None:
        entries, self._collected = self._collected, []
        self._post_many(self._send_cqn, entries, [left] * len(entries))

    def forget_collected(self) -> None:
        self._collected = []

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
        opcode = RECEIVE_OPCODES[op]
        cqe = CQE.pack(self._number, immediate, source, length, index & 0xFFFF, opcode)
        self._post(self._recv_cqn if cqn < 0 else cqn, cqe, solicited)

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

        The sender's MAC address (Ethernet) stands at the same place of the entry as its LID and the
        findings on a packet of IPoIB (InfiniBand). No field tells RoCE v1 from v2: software looks
        at the header itself (Linux `core/verbs.c: ib_get_rdma_header_version`).
        """
        route, immediate = message.route, message.immediate
        opcode = RECEIVE_OPCODES[Op.SEND if immediate is None else Op.SEND_IMM]
        qpn, source, address, checksum = self._number, message.source_qpn, route.smac, 0
        if link is LinkLayer.INFINIBAND:
            source |= _GRH_PRESENT * bool(message.grh) | path_bits << 24
            sl_vid = route.service_level << 12
        else:
            source |= _GRH_PRESENT
            sl_vid = route.service_level << 13
            if route.vlan != NO_VLAN:
                sl_vid |= route.vlan & 0xFFF
        if sl_vid & 0xFFF:
            qpn |= VLAN_PRESENT
        if found is not None:
            flags, checksum = found
            address += _FINDINGS.pack(FRAME_STATUSES[flags], _L4_CHECKED if flags & L4_GOOD else 0)
        cqe = DATAGRAM_CQE.pack(
            qpn,
            pkey_index if immediate is None else immediate,
            source,
            sl_vid,
            address,
            GRH_SIZE + len(message.payload),
            index & 0xFFFF,
            checksum,
            opcode,
        )
        self._post(self._recv_cqn, cqe, message.solicited)

    def complete_frames(
        self, receives: Sequence[tuple[ReceiveWork, bytes]], received: Sequence[Received]
    ) -> None:
        entries: list[bytes] = []
        for (work, frame), known in zip(receives, received, strict=True):
            entries.append(frame_cqe(self._number, work.index, len(frame), known))
        self._post_many(self._recv_cqn, entries, [known.arrived for known in received])

    def fail_receive(
        self, index: int, status: CompletionStatus, cqn: int = -1, source: int = 0
    ) -> None:
        self.diagnostics.receive_failed(status)
        self._post(self._recv_cqn if cqn < 0 else cqn, self._error(index, status), error=True)

    # -- both ---------------------------------------------------------------------------------

    def event(self, event: AsyncEvent) -> None:
        self._eqs.post_numbered(EVENTS[event], self._number)

    def _error(self, index: int, status: CompletionStatus, side: int = 0) -> bytes:
        return ERROR_CQE.pack(
            self._number, index & 0xFFFF, VENDOR_SYNDROMES[status], SYNDROMES[status],
            side | OPCODE_ERROR,
        )  # fmt: skip


def frame_cqe(qpn: int, index: int, length: int, received: Received) -> bytes:
    """Return the completion entry of an Ethernet frame of `length` bytes."""
    kind, tag = received.tag_kind, received.tag
    if not received.stripped and kind != CUSTOMER_TAG:
        kind, tag = NO_TAG, 0  # a customer's tag is told of even where it stays
    found, checksum = received.words or _words(received, kind)
    return FRAME_CQE.pack(
        _TAG_BITS[kind] | qpn,
        received.hash,
        tag,
        FRAME_STATUSES[found],
        0,
        _L4_CHECKED if found & L4_GOOD else 0,
        length,
        index & 0xFFFF,
        checksum,
        1,
    )


def _words(received: Received, kind: int) -> tuple[int, int]:
    """Return findings and checksum of frames whose completions tell of a tag of this kind."""
    headers = received.headers
    found, checksum = findings(received.frame, headers, received.good)
    if headers.network != (HEADER_SIZE if kind == NO_TAG else HEADER_SIZE + TAG_SIZE):
        found &= ~_ANY_IP  # more tags than software expects
    received.words = found, checksum
    return found, checksum
