"""Completions in error: their statuses in verbs, and the vendor syndromes of Mellanox's cards.

ConnectX-4 and later (mlx5) have the vendor syndromes of ConnectX-3 as far as both are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

UNKNOWN_VENDOR_SYNDROME: Final = 0x77
"""The vendor syndrome where nobody has published that of a card."""
_OURS: Final = "nobody's: chosen here"


class Failure(NamedTuple):
    """A failed completion: its status in verbs, its vendor syndrome, the source of that number."""

    verbs: str
    vendor_syndrome: int
    source: str


BY_NAME: Final[Mapping[str, Failure]] = {
    "LOCAL_LENGTH_ERR": Failure(
        "LOC_LEN_ERR", 0x68, "ConnectX-4 Lx: netdev, 2021-01-19, allow tx skb without linear"
    ),
    "LOCAL_QP_OP_ERR": Failure(
        "LOC_QP_OP_ERR", 0x68, "mlx5: gist dch/1bfa5563cca1bc37f8f78da1d48bdbea"
    ),
    "LOCAL_PROT_ERR": Failure(
        "LOC_PROT_ERR", 0x52, "mlx5: openucx/ucx#4727, spdk/spdk#961, FDio/csit#3988"
    ),
    "WR_FLUSH_ERR": Failure(
        "WR_FLUSH_ERR", 0xF9, "mlx5: NVIDIA/nccl#1353, ruihong123/dLSM#7, linux-nvme/nvme-cli#3268"
    ),
    "MW_BIND_ERR": Failure(
        "MW_BIND_ERR", 0x78, "mlx5: Linux 186b169cf1e4, the dump of a registration that failed"
    ),
    "BAD_RESP_ERR": Failure("BAD_RESP_ERR", UNKNOWN_VENDOR_SYNDROME, _OURS),
    "LOCAL_ACCESS_ERR": Failure("LOC_ACCESS_ERR", UNKNOWN_VENDOR_SYNDROME, _OURS),
    "REMOTE_INVAL_REQ_ERR": Failure("REM_INV_REQ_ERR", 0x8A, "mlx5: charmplusplus/charm#2532"),
    "REMOTE_ACCESS_ERR": Failure(
        "REM_ACCESS_ERR", 0x88, "ConnectX-2: NVIDIA's forum, topic 207715"
    ),
    "REMOTE_OP_ERR": Failure("REM_OP_ERR", 0x89, "mlx5: openucx/ucx#5472"),
    "TRANSPORT_RETRY_EXC_ERR": Failure(
        "RETRY_EXC_ERR", 0x81, "ConnectX: Oracle System Handbook, document 1614576.1"
    ),
    "RNR_RETRY_EXC_ERR": Failure(
        "RNR_RETRY_EXC_ERR", 0x87, "ConnectX-6: published measurements of recovery, rnr_retry 0"
    ),
    "REMOTE_ABORTED_ERR": Failure(
        "REM_ABORT_ERR", 0x93, "mlx5: UCX, ib_mlx5.h: UCT_IB_MLX5_CQE_VENDOR_SYND_ODP"
    ),
}
"""The failures by the names of both cards' statuses."""
