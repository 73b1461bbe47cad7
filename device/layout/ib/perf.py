"""Performance management: the counters of a port (management class 0x04)."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64

PERF_DATA_OFFSET = 64


class PerfAttribute(IntEnum):
    """Attributes of the performance management agent."""

    CLASS_PORT_INFO = 0x01
    PORT_COUNTERS = 0x12
    PORT_COUNTERS_EXTENDED = 0x1D


ALL_PORTS = 0xFF
CAP_ALL_PORT_SELECT = 1 << 8
CAP_EXTENDED_WIDTH = 1 << 9

CLASS_PORT_INFO = Struct(
    "ClassPortInfo",
    72,
    [
        u8("base_version", 0, "1"),
        u8("class_version", 1),
        u16("capabilities", 2, "by class"),
        bits("capabilities2", 4, 4, 31, 5),
        bits("response_time", 4, 4, 4, 0, "4.096 us * 2^n"),
        raw("redirect_gid", 8, 16),
        u32("redirect_class", 24),
        u16("redirect_lid", 28),
        u16("redirect_pkey", 30),
        u32("redirect_qp", 32),
        u32("redirect_qkey", 36),
        raw("trap_gid", 40, 16),
        u32("trap_class", 56),
        u16("trap_lid", 60),
        u16("trap_pkey", 62),
        u32("trap_qp", 64),
        u32("trap_qkey", 68),
    ],
    source="InfiniBand vol. 1, 13.4.8.1",
)

PORT_COUNTERS = Struct(
    "PortCounters",
    44,
    [
        u8("port", 1, "0xFF = the sum of all"),
        u16("select", 2, "counters a Set zeroes"),
        u16("symbol_errors", 4),
        u8("link_recoveries", 6),
        u8("link_downed", 7),
        u16("rcv_errors", 8),
        u16("rcv_remote_physical_errors", 10),
        u16("rcv_switch_relay_errors", 12),
        u16("xmit_discards", 14),
        u8("xmit_constraint_errors", 16),
        u8("rcv_constraint_errors", 17),
        u8("select2", 18),
        u16("vl15_dropped", 22),
        u32("xmit_data", 24, "4-byte words"),
        u32("rcv_data", 28, "4-byte words"),
        u32("xmit_packets", 32),
        u32("rcv_packets", 36),
        u32("xmit_wait", 40),
    ],
    source="InfiniBand vol. 1, 16.1.3.5",
)

PORT_COUNTERS_EXTENDED = Struct(
    "PortCountersExtended",
    72,
    [
        u8("port", 1),
        u16("select", 2),
        u64("xmit_data", 8, "4-byte words"),
        u64("rcv_data", 16, "4-byte words"),
        u64("xmit_packets", 24),
        u64("rcv_packets", 32),
        u64("unicast_xmit_packets", 40),
        u64("unicast_rcv_packets", 48),
        u64("multicast_xmit_packets", 56),
        u64("multicast_rcv_packets", 64),
    ],
    source="InfiniBand vol. 1, 16.1.4.11",
)
