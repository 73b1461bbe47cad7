"""The limits that a device reports."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP


@dataclass(slots=True, frozen=True)
class Limits:
    """The limits in the answer to QUERY_DEV_CAP."""

    qp_wqes: int
    log_srq_wqes: int
    log_cqes: int
    send_bytes: int
    recv_bytes: int

    @classmethod
    def of(cls, dev_cap: bytes) -> Limits:
        """Return the limits in `dev_cap`, the answer to QUERY_DEV_CAP."""
        return cls(
            qp_wqes=1 << QUERY_DEV_CAP.get(dev_cap, "log_max_qp_wqes"),
            log_srq_wqes=QUERY_DEV_CAP.get(dev_cap, "log_max_srq_wqes"),
            log_cqes=QUERY_DEV_CAP.get(dev_cap, "log_max_cqes") - 1,
            send_bytes=QUERY_DEV_CAP.get(dev_cap, "max_sq_desc"),
            recv_bytes=QUERY_DEV_CAP.get(dev_cap, "max_rq_desc"),
        )
