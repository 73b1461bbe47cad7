"""A verbs queue pair as the connection manager drives it."""

from __future__ import annotations

from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.guest.cm.path import HOP_LIMIT, MIN_RNR_TIMER, Rtr, Rts
from bluebridge.guest.verbs import AccessFlags, PathAttr, Qp, QpAttr, QpState

REMOTE_ACCESS = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)


class RcPath:
    """`PathQp` over a reliable connected `Qp`."""

    def __init__(self, qp: Qp) -> None:
        self.qp = qp

    @property
    def qpn(self) -> int:
        """Its number."""
        return self.qp.qpn

    def to_init(self) -> None:
        """RESET to INIT."""
        self.qp.modify(QpAttr(state=QpState.INIT, access=REMOTE_ACCESS))

    def to_rtr(self, rtr: Rtr) -> None:
        """INIT to RTR."""
        path = PathAttr(rtr.peer.gid, rtr.peer.mac, rtr.gid_index, hop_limit=HOP_LIMIT)
        self.qp.modify(
            QpAttr(
                state=QpState.RTR,
                access=REMOTE_ACCESS,
                path=path,
                path_mtu=MTU_BYTES[rtr.path_mtu],
                dest_qpn=rtr.dest_qpn,
                rq_psn=rtr.rq_psn,
                max_dest_rd_atomic=rtr.responder_resources,
                min_rnr_timer=MIN_RNR_TIMER,
            )
        )

    def to_rts(self, rts: Rts) -> None:
        """RTR to RTS."""
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
        """Any state to ERR."""
        self.qp.modify(QpAttr(state=QpState.ERR))
