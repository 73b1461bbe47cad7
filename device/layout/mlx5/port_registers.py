"""Registers of ports, which the command ACCESS_REG reads and writes.

Linux `include/linux/mlx5/mlx5_ifc.h`, `core/port.c`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64
from bluebridge.device.layout.mlx5.registers import RegisterId


class LinkMode(IntEnum):
    """Bits of link modes in PTYS (include/linux/mlx5/port.h: mlx5e_link_mode)."""

    KX_1G = 1
    CR4_40G = 6
    CR_10G = 12
    CR4_100G = 20
    CR_25G = 27
    CR2_50G = 30


class PortAdmin(IntEnum):
    """Values of PAOS: the link as software wants it (`admin`), and as it is (`oper`)."""

    UP = 1
    DOWN = 2


class CounterGroup(IntEnum):
    """The groups of counters of PPCNT."""

    IEEE_802_3 = 0x00
    RFC_2863 = 0x01
    RFC_2819 = 0x02
    EXTENDED = 0x05
    PER_PRIORITY = 0x10
    PER_TRAFFIC_CLASS = 0x11
    PHYSICAL = 0x12
    STATISTICAL = 0x16
    INFINIBAND = 0x20


ETHERNET_PROTOCOL: Final = 4
"""The only protocol of PTYS on Ethernet."""
MTU_OVERHEAD: Final = 22
"""Bytes that MTUs of ports and vports count besides the IP packet: header, tag and FCS."""

PAOS = Struct(
    "PAOS",
    0x10,
    u8("port", 0x01),
    bits("admin", 0x00, 4, 11, 8, "PortAdmin"),
    bits("oper", 0x00, 4, 3, 0, "PortAdmin"),
    bits("set_admin", 0x04, 4, 31),
    doc="Port administrative and operational status.",
    source="mlx5_ifc.h: mlx5_ifc_paos_reg_bits",
)
PMTU = Struct(
    "PMTU",
    0x10,
    u8("port", 0x01),
    u16("maximum", 0x04),
    u16("admin", 0x08),
    u16("oper", 0x0C),
    doc="Port MTU.",
    source="mlx5_ifc.h: mlx5_ifc_pmtu_reg_bits",
)
PTYS = Struct(
    "PTYS",
    0x40,
    bits("no_autonegotiation", 0x00, 4, 30),
    bits("can_stop_autonegotiation", 0x00, 4, 29),
    u8("port", 0x01),
    bits("protocol", 0x00, 4, 2, 0, "4 = Ethernet"),
    bits("autonegotiation", 0x04, 4, 31, 28, "1 = done, 4 = off"),
    u32("capability", 0x0C, "bits LinkMode"),
    u32("admin", 0x18),
    u32("oper", 0x24),
    bits("connector", 0x2C, 4, 3, 0, "7 = copper"),
    u32("partner", 0x30),
    doc="Port type and speed.",
    source="mlx5_ifc.h: mlx5_ifc_ptys_reg_bits",
)
PFCC = Struct(
    "PFCC",
    0x20,
    u8("port", 0x01),
    u8("priority_mask_tx", 0x05),
    u8("priority_mask_rx", 0x07),
    bits("pause_tx", 0x08, 4, 31, doc="may ask the peer to pause"),
    u8("priority_pause_tx", 0x09),
    bits("pause_rx", 0x0C, 4, 31, doc="pauses when asked"),
    u8("priority_pause_rx", 0x0D),
    doc="Port flow control.",
    source="mlx5_ifc.h: mlx5_ifc_pfcc_reg_bits",
)
PMLP = Struct(
    "PMLP",
    0x40,
    u8("port", 0x01),
    u8("width", 0x03, "lanes"),
    *(bits(f"module_{lane}", 0x04 + 4 * lane, 4, 7, 0) for lane in range(4)),
    *(bits(f"lane_{lane}", 0x04 + 4 * lane, 4, 19, 16) for lane in range(4)),
    doc="Lanes of a port in its module.",
    source="mlx5_ifc.h: mlx5_ifc_pmlp_reg_bits",
)
MCIA_BYTES: Final = 128
MCIA = Struct(
    "MCIA",
    0x90,
    u8("module", 0x01),
    u8("status", 0x03, "0 = good, 2 = no module"),
    u8("i2c", 0x04, "address of the memory: 0x50, 0x51"),
    u8("page", 0x05),
    u16("address", 0x06, "first byte"),
    u16("length", 0x0A),
    raw("data", 0x10, MCIA_BYTES),
    doc="Memory of a module.",
    source="mlx5_ifc.h: mlx5_ifc_mcia_reg_bits",
)
PPCNT_COUNTERS: Final = 0x08
PPCNT = Struct(
    "PPCNT",
    0x100,
    u8("port", 0x01),
    bits("group", 0x00, 4, 5, 0, "CounterGroup"),
    bits("clear", 0x04, 4, 31),
    bits("priority", 0x04, 4, 4, 0, "or traffic class"),
    raw("counters", PPCNT_COUNTERS, 0xF8, "of the group"),
    doc="Port counters.",
    source="mlx5_ifc.h: mlx5_ifc_ppcnt_reg_bits",
)

PHYSICAL_LINK_DOWN: Final = 0xC0
"""Place of the count of losses of the link in the group PHYSICAL, of 32 bits."""

LAYOUTS: Final[dict[int, Struct]] = {
    RegisterId.PMLP: PMLP,
    RegisterId.PMTU: PMTU,
    RegisterId.PTYS: PTYS,
    RegisterId.PAOS: PAOS,
    RegisterId.PFCC: PFCC,
    RegisterId.PPCNT: PPCNT,
    RegisterId.MCIA: MCIA,
}
"""The layout of a register by its number."""


def _counters(name: str, source: str, *names: str, **places: int) -> Struct:
    """Return a group of counters of 64 bits: `names` from 0 on, and those at other `places`."""
    fields = [u64(name, 8 * place) for place, name in enumerate(names)]
    fields += [u64(name, place) for name, place in places.items()]
    return Struct(name, 0xF8, *fields, source=source)


IEEE_802_3 = _counters(
    "IEEE_802_3",
    "mlx5_ifc.h: mlx5_ifc_eth_802_3_cntrs_grp_data_layout_bits",
    "frames_transmitted_ok", "frames_received_ok", "frame_check_sequence_errors",
    "alignment_errors", "octets_transmitted_ok", "octets_received_ok",
    "multicast_frames_transmitted_ok", "broadcast_frames_transmitted_ok",
    "multicast_frames_received_ok", "broadcast_frames_received_ok", "in_range_length_errors",
    "out_of_range_length_field", "frame_too_long_errors", "symbol_error_during_carrier",
    "mac_control_frames_transmitted", "mac_control_frames_received",
    "unsupported_opcodes_received", "pause_frames_received", "pause_frames_transmitted",
)  # fmt: skip
RFC_2863 = _counters(
    "RFC_2863",
    "mlx5_ifc.h: mlx5_ifc_eth_2863_cntrs_grp_data_layout_bits",
    "in_octets", "in_unicast_packets", "in_discards", "in_errors", "in_unknown_protocols",
    "out_octets", "out_unicast_packets", "out_discards", "out_errors", "in_multicast_packets",
    "in_broadcast_packets", "out_multicast_packets", "out_broadcast_packets",
)  # fmt: skip
RFC_2819 = _counters(
    "RFC_2819",
    "mlx5_ifc.h: mlx5_ifc_eth_2819_cntrs_grp_data_layout_bits",
    "drop_events", "octets", "packets", "broadcast_packets", "multicast_packets",
    "crc_align_errors", "undersize_packets", "oversize_packets", "fragments", "jabbers",
    "collisions", "packets_64", "packets_65_to_127", "packets_128_to_255", "packets_256_to_511",
    "packets_512_to_1023", "packets_1024_to_1518", "packets_1519_to_2047",
    "packets_2048_to_4095", "packets_4096_to_8191", "packets_8192_to_10239",
)  # fmt: skip
PER_PRIORITY = _counters(
    "PER_PRIORITY",
    "mlx5_ifc.h: mlx5_ifc_eth_per_prio_grp_data_layout_bits",
    rx_octets=0x00, rx_frames=0x20, tx_octets=0x28, tx_frames=0x48, rx_pause=0x50,
    rx_pause_duration=0x58, tx_pause=0x60, tx_pause_duration=0x68, rx_pause_transition=0x70,
    rx_discards=0x78,
)  # fmt: skip
