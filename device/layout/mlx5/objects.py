"""Inputs and outputs of the commands on objects; the number of an object is at 8 in both.

Linux `include/linux/mlx5/mlx5_ifc.h`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, u8, u32, u64

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
    bits("modifier", 0x04, 4, 15, 0, "1 = another ring"),
    bits("number", 0x08, 4, 23, 0),
    u32("fields", 0x0C, "CqField"),
    source="mlx5_ifc.h: mlx5_ifc_modify_cq_in_bits",
)
CREATE_MKEY = Struct(
    "CREATE_MKEY",
    LIST,
    u32("translations", 0x60, "length of the list in 16 bytes"),
    doc="The context at 0x10, the list of pages at 0x110.",
    source="mlx5_ifc.h: mlx5_ifc_create_mkey_in_bits",
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
    u32("out_of_buffer", 0x30, "frames that found no receive"),
    source="mlx5_ifc.h: mlx5_ifc_query_q_counter_out_bits",
)
