"""Counters of what went wrong on a port's queue pairs, called as Linux's mlx4 driver calls them.

`rq_` are of the side that is sent to, `sq_` of the side that sends (Linux `ib/main.c: diag_basic,
diag_ext`, which a guest has in `/sys/class/infiniband/mlx4_0/ports/1/hw_counters`).
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.device.rdma.vocabulary import CompletionStatus

_KIND_OF_SYNDROME: Final = 0x60
_SENDS: Final = {
    int(CompletionStatus.LOCAL_LENGTH_ERR): "sq_num_lle",
    int(CompletionStatus.LOCAL_QP_OP_ERR): "sq_num_lqpoe",
    int(CompletionStatus.LOCAL_PROT_ERR): "sq_num_lpe",
    int(CompletionStatus.WR_FLUSH_ERR): "sq_num_wrfe",
    int(CompletionStatus.MW_BIND_ERR): "sq_num_mwbe",
    int(CompletionStatus.BAD_RESP_ERR): "sq_num_bre",
    int(CompletionStatus.REMOTE_INVAL_REQ_ERR): "sq_num_rire",
    int(CompletionStatus.REMOTE_ACCESS_ERR): "sq_num_rae",
    int(CompletionStatus.REMOTE_OP_ERR): "sq_num_roe",
    int(CompletionStatus.TRANSPORT_RETRY_EXC_ERR): "sq_num_tree",
    int(CompletionStatus.RNR_RETRY_EXC_ERR): "sq_num_rree",
}
_RECEIVES: Final = {
    int(CompletionStatus.LOCAL_LENGTH_ERR): "rq_num_lle",
    int(CompletionStatus.LOCAL_QP_OP_ERR): "rq_num_lqpoe",
    int(CompletionStatus.LOCAL_PROT_ERR): "rq_num_lpe",
    int(CompletionStatus.WR_FLUSH_ERR): "rq_num_wrfe",
}
_REFUSALS: Final = {
    int(Syndrome.NAK_PSN): "rq_num_oos",
    int(Syndrome.NAK_INVALID_REQUEST): "rq_num_rire",
    int(Syndrome.NAK_REMOTE_ACCESS): "rq_num_rae",
}


class Diagnostics:
    """The counters of one port since its adapter was reset, by name; those at zero are left out."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Count one more of this name."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def send_failed(self, status: CompletionStatus) -> None:
        """Count a send work request that completed in error or flushed."""
        self.add(_SENDS.get(status, "sq_num_lpe"))

    def receive_failed(self, status: CompletionStatus) -> None:
        """Count a receive that completed in error or flushed."""
        self.add(_RECEIVES.get(status, "rq_num_lpe"))

    def refused(self, syndrome: int) -> None:
        """Count a NAK or RNR NAK that was sent."""
        name = _REFUSALS.get(syndrome)
        if name is None and syndrome & _KIND_OF_SYNDROME == Syndrome.RNR_NAK:
            name = "rq_num_rnr"
        if name is not None:
            self.add(name)

    def was_refused(self, syndrome: int) -> None:
        """Count a sequence NAK or RNR NAK that came; others end in a completion."""
        if syndrome == Syndrome.NAK_PSN:
            self.add("sq_num_oos")
        elif syndrome & _KIND_OF_SYNDROME == Syndrome.RNR_NAK:
            self.add("sq_num_rnr")
