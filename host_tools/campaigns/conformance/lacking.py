"""What the card's drivers, or the card, lack where one of rdma-core's tests skips."""

from __future__ import annotations

import re

_LACKING = (
    ("Create custom mr with additional access", "mlx4_ib has no FLUSH"),
    ("Device /dev/dri", "a GPU; and mlx4_ib registers no DMA-BUF (`reg_user_mr_dmabuf`)"),
    ("Device memory", "mlx4_ib has none (`alloc_dm`)"),
    (
        ".*Ipv[46](Ext)?Spec",
        "mlx4_ib knows rules for Ethernet, IB, IPv4, TCP, UDP (`parse_flow_attr`)",
    ),
    (".*UDP with RoCEv2", "the test names both ConnectX-3 by part number"),
    ("Extended CQ", "tag matching: libmlx4 has no such flag of a CQ"),
    ("Extended QP", "libmlx4 has no `ibv_qp_ex`"),
    (
        "Flow creation",
        "mlx4_core keeps no rules unless loaded with `log_num_mgm_entry_size=-1`, as in roce-v2",
    ),
    ("ODP", "mlx4_ib pins memory"),
    ("Parent Domain", "libmlx4 has none"),
    ("SRQ resize", "`mlx4_ib_modify_srq` refuses it"),
    (
        "WQN must be aligned",
        "the test names both ConnectX-3 by part number; over aligned work queues it runs in dpdk",
    ),
    (
        "Link layer|Must be run by root on Ethernet|To Create RAW QP",
        "the link is not Ethernet",
    ),
    ("All gid indices", "an empty place in the table of an InfiniBand port"),
)
"""Beginnings of reasons as regular expressions, and what is missing."""


def lacking(reason: str) -> str:
    """What is missing where a test gives `reason`; empty if nobody has looked it up."""
    return next((why for begins, why in _LACKING if re.match(begins, reason)), "")
