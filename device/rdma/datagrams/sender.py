"""The sending of datagrams by UD queue pairs, and by QP0 and QP1 with headers built by software."""

from __future__ import annotations

from collections import deque
from typing import Final

from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.frames.sending import with_checksums
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.ip import IPOIB_HEADER_SIZE
from bluebridge.device.layout.net.roce import GSI_QPN, NO_GID, SMI_QPN
from bluebridge.device.rdma.pairs.costs import COST_LIMIT, MESSAGE_COST
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.unconnected_sender import UnconnectedSender
from bluebridge.device.rdma.ports.datagram_headers import (
    HeaderError,
    LostPacketError,
    build_network_header,
)
from bluebridge.device.rdma.vocabulary import LARGE_SEND, SEND_IMM, Role
from bluebridge.device.rdma.work import DatagramWork, SendWork, TooLongError, WorkError

_SPECIAL_QPNS: Final = {Role.SMI: SMI_QPN, Role.GSI: GSI_QPN}
MAX_PAYLOAD: Final = 4096
"""Largest payload of a datagram in bytes, which is the largest path MTU."""
MAX_GSO_LOG: Final = 18
MAX_LARGE_SEND: Final = 1 << MAX_GSO_LOG
"""Largest payload of one large send in bytes."""
MAX_PIECES: Final = 512
"""Most datagrams that one large send may become."""


class DatagramSender(UnconnectedSender):
    """The send engine of UD queue pairs, QP0 and QP1.

    `_rest` are datagrams of a large send that wait for the next turn: its share of time was over.
    They own their bytes, so the entry is complete before they left.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._psn = 0
        self._rest: deque[Datagram] = deque()

    def _send(self, work: SendWork) -> None:
        qp = self._qp
        if isinstance(work, DatagramWork):
            if work.operation == LARGE_SEND:
                self._send_large(work)
                return
            payload = self._gather(work, What.PAYLOAD)
            good = False
            if work.checksums:
                payload, good = with_checksums(payload, work.checksums, IPOIB_HEADER_SIZE)
            (message,) = self._addressed(work, [payload], good)
        else:
            packet = self._gather(work, What.MAD)
            try:
                message = qp.port.parse_packet(packet, qp.qkey)
            except LostPacketError as lost:
                qp.bus.tell(Fact.WORK_REFUSED, qpn=qp.qpn, index=work.index, reason=str(lost))
                return
            # QP1's helper for RoCE v2 sends as itself: `mlx4_ib_create_qp`, `roce_v2_gsi`.
            if message.source_qpn not in (_SPECIAL_QPNS[qp.role], qp.qpn):
                raise HeaderError(f"{qp.role.name} sends as QP {message.source_qpn:#x}")
        self._hand_over(message)

    def _hand_over(self, message: Datagram) -> None:
        qp = self._qp
        packets, size = size_of(message)
        qp.traffic.sent(packets, size)
        copies = qp.port.send(message)
        qp.spent += MESSAGE_COST * (1 + copies)

    def _send_large(self, work: DatagramWork) -> None:
        """Cut a TCP segment of IPoIB into datagrams with headers and checksums of their own."""
        qp, mss = self._qp, work.mss
        if work.length > min(qp.max_message, MAX_LARGE_SEND) or work.length > mss * MAX_PIECES:
            raise TooLongError(f"a large send of {work.length} bytes, {mss} in each datagram")
        payload = b"".join(qp.memory.gather(work.parts, note=True, what=What.PAYLOAD))
        packets = work.cut(work.header, payload, ipoib=True)
        self._rest.extend(self._addressed(work, packets, True))
        self._send_rest()
        work.length += len(work.header)

    def _send_rest(self) -> None:
        """Send datagrams of a large send, as many as the queue's share of time allows."""
        qp, rest = self._qp, self._rest
        while rest and qp.spent < COST_LIMIT:
            self._hand_over(rest.popleft())

    def blocked(self) -> bool:
        """Return True while a large send is not over; the queue runs again afterwards."""
        self._send_rest()
        return bool(self._rest) or super().blocked()

    def stop(self) -> None:
        """Forget what is left of a large send."""
        super().stop()
        self._rest.clear()

    def _gather(self, work: SendWork, what: What) -> bytes:
        """Return the bytes of the message; raises `TooLongError`."""
        qp = self._qp
        limit = min(qp.max_message, MAX_PAYLOAD) if qp.role is Role.UD else MAX_PAYLOAD
        if work.length > limit:
            raise TooLongError(f"a message of {work.length} bytes")
        return b"".join(qp.memory.gather(work.parts, note=True, what=what))

    def _addressed(self, work: DatagramWork, payloads: list[bytes], good: bool) -> list[Datagram]:
        """Return UD messages with the given payloads to the address in their work request."""
        qp = self._qp
        if work.address_pd is not None and work.address_pd != qp.pd:
            raise WorkError(f"an address vector of PD {work.address_pd}, not {qp.pd}")
        port, address = qp.port, work.address
        route = port.known_route(address, qp.pkey_index)
        if route is None:
            route = port.learn_route(address, qp.read_path(address), qp.pkey_index)
        immediate = work.immediate if work.operation == SEND_IMM else None
        first = self._psn + 1
        self._psn = (self._psn + len(payloads)) & 0xFFFFFF
        return [
            Datagram(
                route=route,
                source_qpn=qp.shown_number,
                target_qpn=work.target_qpn,
                qkey=qp.qkey if work.own_qkey else work.qkey,
                psn=psn & 0xFFFFFF,
                grh=_header(route, len(payload), immediate is not None),
                payload=payload,
                immediate=immediate,
                solicited=work.solicited,
                pkey=route.pkey,
                good=good,
            )
            for psn, payload in enumerate(payloads, first)
        ]


def _header(route: Route, payload: int, immediate: bool) -> bytes:
    """Return the network header; on InfiniBand it is empty where the address has no GRH."""
    return b"" if route.dgid == NO_GID else build_network_header(route, payload, immediate)
