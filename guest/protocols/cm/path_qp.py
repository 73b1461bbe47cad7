"""The state changes of a connection's queue pair, as rdma_cm makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.guest.protocols.cm.transport import Peer
from bluebridge.guest.verbs import (
    AccessFlags,
    AddressVector,
    QpAttr,
    QpState,
    QueuePair,
    RoceAddress,
)

MTU_1024 = 3
"""The path MTU code of RoCE over an Ethernet MTU of 1500."""
ACK_TIMEOUT_CODE = 18
"""The ACK timeout code: 4.096 us * 2^18 = 1.07 s.

The kernel's 16 or 17 is short for a peer emulated by software.
"""
HOP_LIMIT = 64
MIN_RNR_TIMER = 12
"""The code of the shortest RNR delay, 0.64 ms, as user programs choose.

core/cm.c sets 0, which means 655 ms.
"""


@dataclass(frozen=True, slots=True)
class Rtr:
    """Attributes for INIT to RTR: peer's QPN, first PSN, peer's address, GID index, MTU code."""

    dest_qpn: int
    rq_psn: int
    peer: Peer
    gid_index: int
    path_mtu: int
    responder_resources: int


@dataclass(frozen=True, slots=True)
class Rts:
    """RTR to RTS attributes: peer's PSN, ACK timeout code, retries, reads and atomics in flight."""

    sq_psn: int
    ack_timeout: int
    retry_count: int
    rnr_retry_count: int
    initiator_depth: int


class PathQp(Protocol):
    """A reliable connected queue pair that a `CmId` can drive; steps raise `VerbsError`."""

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""

    def to_init(self) -> None:
        """Go from RESET to INIT with remote read, write and atomics allowed."""

    def to_rtr(self, rtr: Rtr) -> None:
        """Go from INIT to RTR."""

    def to_rts(self, rts: Rts) -> None:
        """Go from RTR to RTS."""

    def to_error(self) -> None:
        """Go from any state to ERROR, which flushes everything that is posted."""


REMOTE_ACCESS = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)


class RcPathQp:
    """`PathQp` over a reliable connected queue pair; `address_vector` says how to reach a peer."""

    def __init__(self, qp: QueuePair, address_vector: Callable[[Rtr], AddressVector]) -> None:
        self.qp = qp
        self._address_vector = address_vector

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""
        return self.qp.qpn

    def to_init(self) -> None:
        """Go from RESET to INIT."""
        self.qp.modify(QpAttr(state=QpState.INIT, access=REMOTE_ACCESS))

    def to_rtr(self, rtr: Rtr) -> None:
        """Go from INIT to RTR."""
        self.qp.modify(
            QpAttr(
                state=QpState.RTR,
                access=REMOTE_ACCESS,
                address_vector=self._address_vector(rtr),
                path_mtu=MTU_BYTES[rtr.path_mtu],
                dest_qpn=rtr.dest_qpn,
                rq_psn=rtr.rq_psn,
                max_dest_rd_atomic=rtr.responder_resources,
                min_rnr_timer=MIN_RNR_TIMER,
            )
        )

    def to_rts(self, rts: Rts) -> None:
        """Go from RTR to RTS."""
        self.qp.modify(
            QpAttr(
                state=QpState.RTS,
                sq_psn=rts.sq_psn,
                timeout=rts.ack_timeout,
                retry_count=rts.retry_count,
                rnr_retry=rts.rnr_retry_count,
                max_rd_atomic=rts.initiator_depth,
            )
        )

    def to_error(self) -> None:
        """Go from any state to ERR."""
        self.qp.modify(QpAttr(state=QpState.ERR))


def roce_path_qp(qp: QueuePair) -> RcPathQp:
    """Return the `PathQp` of a queue pair whose peers are on Ethernet."""
    return RcPathQp(qp, _roce_address)


def _roce_address(rtr: Rtr) -> RoceAddress:
    return RoceAddress(
        rtr.peer.gid,
        rtr.peer.mac,
        rtr.gid_index,
        traffic_class=rtr.peer.traffic_class,
        hop_limit=HOP_LIMIT,
    )
