"""Inputs and outputs of the commands on objects; the number of an object is at 8 in both.

Linux `include/linux/mlx5/mlx5_ifc.h`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u32, u64

ENTRY: Final = 0x10
"""Byte offset of the context of a CQ or a key, in inputs and outputs of their commands."""
CONTEXT: Final = 0x20
"""Byte offset of the context of an SQ, RQ, RMP, TIS, TIR or RQT, in inputs and outputs."""
LIST: Final = 0x110
"""Byte offset of lists of pages and of RQs, which follow the contexts."""
VPORT_OUT: Final = 0x10
VPORT_IN: Final = 0x100
"""Byte offsets of a virtual port's context: in a query's output, and in a change's input."""


class RqField(IntFlag):
    """Bits of MODIFY_RQ's bitmask: the fields that it changes besides the state."""

    VLAN_STRIP = 1 << 1
    KEEP_FCS = 1 << 2
    COUNTER_SET = 1 << 3


class TirField(IntFlag):
    """Bits of MODIFY_TIR's bitmask: the fields of the TIR that it changes."""

    MERGE = 1 << 0
    HASH = 1 << 2
    LOOPBACK = 1 << 4


class CqField(IntFlag):
    """Bits of MODIFY_CQ: the fields that it changes (inc/device.h: MLX5_CQ_MODIFY_*)."""

    PERIOD = 1 << 0
    COUNT = 1 << 1
    OVERRUN = 1 << 2
    PERIOD_MODE = 1 << 4


class VportField(IntFlag):
    """Bits of modify_nic_vport_field_select: fields that MODIFY_NIC_VPORT_CONTEXT changes."""

    ROCE = 1 << 1
    ADDRESSES = 1 << 2
    PERMANENT_ADDRESS = 1 << 3
    PROMISCUOUS = 1 << 4
    EVENTS = 1 << 5
    MTU = 1 << 6
    MIN_INLINE = 1 << 7
    PORT_GUID = 1 << 8
    NODE_GUID = 1 << 9
    MULTICAST_LOOPBACK = 1 << 10
    UNICAST_LOOPBACK = 1 << 11


class AddressList(IntEnum):
    """The lists of a virtual port."""

    UNICAST = 0
    MULTICAST = 1
    VLAN = 2


MODIFY_QUEUE = Struct(
    "MODIFY_QUEUE",
    0x20,
    bits("state", 0x08, 4, 31, 28, "that the queue is in"),
    bits("number", 0x08, 4, 23, 0),
    u64("fields", 0x10, "what is changed besides the state"),
    doc="Beginning of MODIFY_SQ, MODIFY_RQ, MODIFY_RMP, MODIFY_TIR and MODIFY_RQT.",
    source="mlx5_ifc.h: mlx5_ifc_modify_rq_in_bits",
)
MODIFY_CQ = Struct(
    "MODIFY_CQ",
    0x10,
    bits("modifier", 0x04, 4, 15, 0, "RESIZE: another ring"),
    bits("number", 0x08, 4, 23, 0),
    u32("fields", 0x0C, "CqField"),
    source="mlx5_ifc.h: mlx5_ifc_modify_cq_in_bits",
)
RESIZE: Final = 1
"""Modifier of MODIFY_CQ for another ring."""
CREATE_MKEY = Struct(
    "CREATE_MKEY",
    LIST,
    bits("umem_valid", 0x0C, 4, 30, doc="the pages are those of memory of a user"),
    u32("translations", 0x60, "length of the list in 16 bytes"),
    u32("umem", 0x64),
    u64("umem_offset", 0x68),
    doc="The context at 0x10, the list of pages at 0x110.",
    source="mlx5_ifc.h: mlx5_ifc_create_mkey_in_bits",
)
SPECIAL_CONTEXTS = Struct(
    "SPECIAL_CONTEXTS",
    0x20,
    u32("dump_fill_lkey", 0x08, "through which nothing is stored"),
    u32("reserved_lkey", 0x0C, "all of memory, for queue pairs with `reserved_lkey`"),
    u32("null_key", 0x10, "of parts of keys that are absent"),
    doc="Output of QUERY_SPECIAL_CONTEXTS: keys that need no CREATE_MKEY.",
    source="mlx5_ifc.h: mlx5_ifc_query_special_contexts_out_bits",
)
QUERY_VPORT = Struct(
    "QUERY_VPORT",
    0x10,
    bits("other", 0x08, 4, 31, doc="of another function"),
    bits("vport", 0x08, 4, 15, 0),
    bits("list_type", 0x0C, 4, 26, 24, "AddressList"),
    source="mlx5_ifc.h: mlx5_ifc_query_nic_vport_context_in_bits",
)
MODIFY_VPORT = Struct(
    "MODIFY_VPORT",
    0x10,
    bits("other", 0x08, 4, 31, doc="of another function"),
    bits("vport", 0x08, 4, 15, 0),
    u32("fields", 0x0C, "VportField"),
    source="mlx5_ifc.h: mlx5_ifc_modify_nic_vport_context_in_bits",
)
VPORT_STATE = Struct(
    "VPORT_STATE",
    0x10,
    bits("admin_state", 0x0C, 4, 7, 4, "0 down, 1 up, 2 as the link"),
    bits("state", 0x0C, 4, 3, 0, "1 = up"),
    source="mlx5_ifc.h: mlx5_ifc_query_vport_state_out_bits",
)
VPORT_COUNTERS = Struct(
    "VPORT_COUNTERS",
    0x210,
    *(
        field
        for place, name in enumerate(
            (
                "received_errors", "transmit_errors",
                "received_ib_unicast", "transmitted_ib_unicast",
                "received_ib_multicast", "transmitted_ib_multicast",
                "received_broadcast", "transmitted_broadcast",
                "received_unicast", "transmitted_unicast",
                "received_multicast", "transmitted_multicast", "local_loopback",
            )
        )
        for field in (
            u64(f"{name}_packets", 0x10 + 0x10 * place),
            u64(f"{name}_octets", 0x18 + 0x10 * place),
        )
    ),
    source="mlx5_ifc.h: mlx5_ifc_query_vport_counter_out_bits",
)  # fmt: skip
QUERY_Q_COUNTER = Struct(
    "QUERY_Q_COUNTER",
    0x20,
    bits("clear", 0x18, 4, 31),
    u8("number", 0x1F),
    source="mlx5_ifc.h: mlx5_ifc_query_q_counter_in_bits",
)
Q_COUNTERS = Struct(
    "Q_COUNTERS",
    0x100,
    u32("rx_write_requests", 0x10, "of peers, carried out; repetitions are not counted"),
    u32("rx_read_requests", 0x18),
    u32("rx_atomic_requests", 0x20),
    u32("out_of_buffer", 0x30, "frames, datagrams and messages that found no receive"),
    u32("out_of_sequence", 0x38),
    u32("duplicate_request", 0x40),
    u32("rnr_nak_retry_err", 0x48),
    u32("packet_seq_err", 0x50),
    u32("implied_nak_seq_err", 0x58),
    u32("local_ack_timeout_err", 0x60),
    u32("req_rnr_retries_exceeded", 0x70),
    u32("resp_local_length_error", 0x78),
    u32("req_local_length_error", 0x7C),
    u32("resp_local_qp_error", 0x80),
    u32("local_operation_error", 0x84),
    u32("resp_local_protection", 0x88),
    u32("req_local_protection", 0x8C),
    u32("resp_cqe_error", 0x90),
    u32("req_cqe_error", 0x94),
    u32("req_mw_binding", 0x98),
    u32("req_bad_response", 0x9C),
    u32("req_remote_invalid_request", 0xA0),
    u32("resp_remote_invalid_request", 0xA4),
    u32("req_remote_access_errors", 0xA8),
    u32("resp_remote_access_errors", 0xAC),
    u32("req_remote_operation_errors", 0xB0),
    u32("req_transport_retries_exceeded", 0xB4),
    u32("resp_cqe_flush_error", 0xBC),
    u32("req_cqe_flush_error", 0xC0),
    source="mlx5_ifc.h: mlx5_ifc_query_q_counter_out_bits",
)
ROCE_ADDRESS = Struct(
    "ROCE_ADDRESS",
    0x20,
    raw("gid", 0x00, 16, "zero for none"),
    bits("vlan_valid", 0x10, 4, 28),
    bits("vlan", 0x10, 4, 27, 16),
    raw("mac", 0x12, 6),
    bits("l3_type", 0x18, 4, 11, 8, "0 = IPv4, 1 = IPv6"),
    bits("version", 0x18, 4, 7, 0, "0 = RoCE v1, 2 = v2"),
    doc="An own address: what messages come from, and which are taken.",
    source="mlx5_ifc.h: mlx5_ifc_roce_addr_layout_bits",
)
ROCE_V2: Final = 2
SET_ROCE_ADDRESS = Struct(
    "SET_ROCE_ADDRESS",
    0x30,
    bits("index", 0x08, 4, 31, 16),
    bits("port", 0x08, 4, 3, 0),
    raw("address", 0x10, ROCE_ADDRESS.size, "ROCE_ADDRESS"),
    doc="The same index is where QUERY_ROCE_ADDRESS has it; its output has the address at 0x10.",
    source="mlx5_ifc.h: mlx5_ifc_set_roce_address_in_bits",
)
GROUP_MEMBER = Struct(
    "GROUP_MEMBER",
    0x20,
    bits("qpn", 0x08, 4, 23, 0),
    raw("gid", 0x10, 16),
    doc="Input of ATTACH_TO_MCG and DETACH_FROM_MCG.",
    source="mlx5_ifc.h: mlx5_ifc_attach_to_mcg_in_bits",
)
VPORT_PKEY = Struct(
    "VPORT_PKEY",
    0x14,
    bits("pkey", 0x10, 4, 15, 0, "the one that there is"),
    doc="Output of QUERY_HCA_VPORT_PKEY.",
    source="mlx5_ifc.h: mlx5_ifc_query_hca_vport_pkey_out_bits",
)
