"""A queue pair of verbs in the form that the connection manager drives."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.guest.protocols.cm.path_qp import HOP_LIMIT, MIN_RNR_TIMER, Rtr, Rts
from bluebridge.guest.verbs import (
    AccessFlags,
    AddressVector,
    QpAttr,
    QpState,
    QueuePair,
    RoceAddress,
)

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
