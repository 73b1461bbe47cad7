"""The answer to QUERY_DEV_CAP: sizes of tables, features that drivers may use."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from bluebridge.device.frames.rules import MAX_EQUAL_RULES
from bluebridge.device.layout.mlx4.capabilities import (
    QUERY_DEV_CAP,
    RESERVED_LKEY,
    BmmeFlag,
    DevFlag,
)
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, UAR_AREA_CODE
from bluebridge.device.mlx4.settings.config import Features

CORE_CLOCK_MHZ = 1000
MAX_PAIRS: Final = 1 << 16
"""Most queue pairs at a time. The size of the table cannot be the bound: Linux asks INIT_HCA for
2^18, whatever the capabilities say, and gives up when that is refused (`mlx4/main.c:
default_profile`).
"""
MAX_MTU: Final = 9600
MAX_FRAME: Final = 9728
"""Longest frame that a queue pair may send, in bytes."""

MAX_ICM_BYTES: Final = 1 << 40

INTERFACE_COUNTERS = 256
"""Number of counters that the paths of queue pairs may name (QUERY_IF_STAT)."""

HIGH_RATE_FIRST, HIGH_RATE_COUNT = 1 << 6, 1 << 8
"""Queue pairs that static A0 rules may name: those behind the reserved ones."""

MAX_GSO_LOG = 18
"""Logarithm of the most bytes in one large send of a UD queue pair."""

RSS_XOR, RSS_TOEPLITZ, LOG_RSS_TABLE = 1 << 5, 1 << 4, 7

_LIMITS = {
    "log_max_srq_wqes": 14,
    "log_max_qp_wqes": 14,
    "log_reserved_qps": 6,
    "log_max_qps": 18,
    "log_reserved_srqs": 6,
    "log_max_srqs": 16,
    "log_max_cqes": 22,
    "log_reserved_cqs": 7,  # fewer would double every completion EQ of the driver
    "log_max_cqs": 16,
    "log_max_mpts": 19,
    "log_reserved_eqs": 2,
    "log_max_eqs": 7,
    "log_reserved_mtts": 4,
    "log_reserved_mrws": 8,  # the reserved lkey is MPT index 5
    "log_max_requester_depth": 7,
    "log_max_responder_depth": 4,
    "log_max_gso": MAX_GSO_LOG,
    "rss": RSS_XOR | RSS_TOEPLITZ | LOG_RSS_TABLE,
    "flow_stats": 1,
    "eth_prot_ctrl": 1,
    "ack_delay": 15,
    "vl_port_width": 0x54,
    "log_max_msg": 30,
    "log_max_gids": 7,
    "log_max_pkeys": 7,
    "rate_support": 0xFFFF,
    "timestamps": 1,
    "map_clock": 1,
    "uar_size_code": UAR_AREA_CODE,
    "log_page_size": 9,
    "max_sq_sge": 32,
    "max_sq_desc": 1008,
    "max_rq_sge": 32,
    "max_rq_desc": 512,
    "log_max_qp_per_mcg": 8,
    "log_max_mcgs": 13,
    "steers_datagrams": 1,
    "flow_steering": 1,
    "steering_sniffers": 1,
    "max_qp_per_rule": MAX_EQUAL_RULES,
    "high_rate_qpn": HIGH_RATE_FIRST,
    "high_rate_count": HIGH_RATE_COUNT,
    "reserved_pds": 4,
    "log_max_pds": 15,
    "reserved_xrcds": 0,
    "log_max_xrcds": 16,
    "max_counters": INTERFACE_COUNTERS,
    "max_icm_size": MAX_ICM_BYTES,
    "reserved_lkey": RESERVED_LKEY,
}
_ENTRY_BYTES = {
    "rdmarc_entry": 32,
    "qpc_entry": 256,
    "aux_entry": 64,
    "altc_entry": 64,
    "eqc_entry": 64,
    "cqc_entry": 64,
    "srqc_entry": 64,
    "cmpt_entry": 64,
    "mtt_entry": 8,  # drivers store 8-byte entries whatever is said here
    "dmpt_entry": 64,
}

INIT_LIMITS = {
    "log_qps": range(_LIMITS["log_max_qps"] + 1),
    "log_srqs": range(_LIMITS["log_max_srqs"] + 1),
    "log_cqs": range(_LIMITS["log_max_cqs"] + 1),
    "log_eqs": range(_LIMITS["log_max_eqs"] + 1),
    "log_mpts": range(_LIMITS["log_max_mpts"] + 1),
}
"""The largest values that INIT_HCA may ask for, by the name of the parameter."""

LOG_ENTRY_SIZES = range(6, 13)  # a header of 32 bytes, then members
GROUP_LIMITS = {
    "log_mc_entries": range(_LIMITS["log_max_mcgs"] + 1),
    "log_mc_hash": range(_LIMITS["log_max_mcgs"] + 1),
    "log_mc_entry_size": LOG_ENTRY_SIZES,
}
"""The limits of the group table that software keeps, in the modes A0 and B0."""

RULE_LIMITS = {
    "log_rules": range(18),  # Linux: MLX4_FS_NUM_MCG
    "log_rule_size": LOG_ENTRY_SIZES,
}
"""The limits of the rule table that the device keeps."""


@lru_cache(maxsize=2)
def device_capabilities(ports: int, features: Features) -> bytes:
    """Return the mailbox of QUERY_DEV_CAP."""
    flags, bmme_flags = sum(DevFlag), sum(BmmeFlag)
    if not features.large_cqes:
        flags &= ~DevFlag.CQE_64B
    if not features.pro:
        bmme_flags &= ~BmmeFlag.ROCE_V1_V2
    return bytes(
        QUERY_DEV_CAP.pack(
            {**_LIMITS, **_ENTRY_BYTES},
            num_ports=ports, diag_per_port=1, blueflame=int(features.blueflame),
            log_bf_reg_size=features.blueflame_register.bit_length() - 1,
            log_bf_regs_per_page=(PAGE_SIZE // features.blueflame_register).bit_length() - 1,
            flags_hi=flags >> 32, flags_lo=flags & 0xFFFFFFFF, bmme_flags=bmme_flags,
        )
    )  # fmt: skip
