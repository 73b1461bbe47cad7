"""Names of libibverbs for statuses and operations, in all the ways in which people write them."""

from __future__ import annotations

from collections.abc import Mapping

WC_STATUSES = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
    "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
)  # fmt: skip
"""The names of `enum ibv_wc_status`, by number, without `IBV_WC_`."""

RECEIVE = "RECV"
RECEIVE_WRITE = "RECV_RDMA_WITH_IMM"
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "SEND": (),
    "SEND_IMM": ("SEND_WITH_IMM", "SEND_IMMEDIATE"),
    "SEND_INV": ("SEND_WITH_INV", "SEND_INVAL", "SEND_WITH_INVALIDATE", "SEND_INVALIDATE"),
    "WRITE": ("RDMA_WRITE",),
    "WRITE_IMM": ("RDMA_WRITE_WITH_IMM", "RDMA_WRITE_IMM", "WRITE_IMMEDIATE"),
    "READ": ("RDMA_READ",),
    "COMPARE_SWAP": ("ATOMIC_CMP_AND_SWP", "COMP_SWAP", "ATOMIC_CS"),
    "FETCH_ADD": ("ATOMIC_FETCH_AND_ADD", "ATOMIC_FA"),
    "MASKED_COMPARE_SWAP": (
        "MASKED_ATOMIC_CMP_AND_SWP", "MASKED_COMP_SWAP", "MASKED_ATOMIC_CS",
        "ATOMIC_MASKED_CS",
    ),
    "MASKED_FETCH_ADD": (
        "MASKED_ATOMIC_FETCH_AND_ADD", "MASKED_ATOMIC_FA", "ATOMIC_MASKED_FA",
    ),
    "NOP": (),
    "TSO": ("LSO",),
    "LOCAL_INV": ("LOCAL_INVAL",),
    "BIND_MW": (),
    "REG_MR": ("FAST_REG_MR",),
    RECEIVE: (),
    RECEIVE_WRITE: (),
}  # fmt: skip
"""Operations of work requests, with what verbs (`IBV_WR_`, `IBV_WC_`) and devices call them.

The short names of the first ten are those of messages on the wire
(`bluebridge.device.layout.net.roce.Op`).
"""

_PREFIXES = ("IBV_WC_", "IBV_WR_", "IB_WC_", "IB_WR_")
_OPERATION = {
    name: operation for operation, others in OPERATIONS.items() for name in (operation, *others)
}


def bare(name: str) -> str:
    """Return a name in capitals and without the prefix of its enumeration in verbs."""
    name = name.upper()
    return next((name.removeprefix(each) for each in _PREFIXES if name.startswith(each)), name)


def operation(name: str) -> str:
    """Return the short name of an operation by any of its names, else the bare name."""
    name = bare(name)
    return _OPERATION.get(name, name)
