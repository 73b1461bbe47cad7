"""PCI configuration space: header and capabilities (little-endian, PCI Express base 3.0)."""

from __future__ import annotations

from bluebridge.device.layout.fields import Field, Struct, bits, raw, u8, u16, u32

VENDOR_MELLANOX = 0x15B3
DEVICE_CONNECTX3 = 0x1003
DEVICE_CONNECTX3_PRO = 0x1007
DEVICE_CONNECTX2 = 0x673C
DEVICE_CONNECTX5 = 0x1017
HCA_IDS = tuple(
    (VENDOR_MELLANOX, device)
    for device in (DEVICE_CONNECTX3, DEVICE_CONNECTX3_PRO, DEVICE_CONNECTX2)
)
"""Vendor and device IDs of adapters with the interface of ConnectX-3.

The last one, MT26428, is the ID that a guest sees when iPXE booted it: the driver of iPXE knows no
ConnectX-3 (`hermon.c: hermon_nics`).
"""
CONNECTX5_IDS = ((VENDOR_MELLANOX, DEVICE_CONNECTX5),)
"""Those of adapters with the interface of ConnectX-5."""
ADAPTER_IDS = HCA_IDS + CONNECTX5_IDS
SUBSYSTEM_CONNECTX3 = 0x0055
SUBSYSTEM_CONNECTX5 = 0x0007
CLASS_ETHERNET = 0x020000
CLASS_INFINIBAND = 0x0C0600

CAP_ID_PM = 0x01
CAP_ID_VPD = 0x03
CAP_ID_VENDOR = 0x09
VENDOR_OFFSET = 0xC0
VENDOR_BYTES = 0x18
CAP_ID_EXPRESS = 0x10
CAP_ID_MSIX = 0x11
EXTENDED_CAPABILITIES = 0x100
EXTENDED_ID_SERIAL_NUMBER = 0x0003

MESSAGE_BASE = 0xFEE00000
MESSAGE_END = 0xFEF00000
"""End of the address range in which 4-byte writes are interrupts (Intel SDM vol. 3, 11.11.1)."""

CONFIG_SIZE = 4096
BAR_64BIT = 0x4
BAR_PREFETCHABLE = 0x8
COMMAND_MEMORY = 1 << 1
COMMAND_BUS_MASTER = 1 << 2

HEADER = Struct(
    "CONFIG",
    64,
    u16("vendor", 0x00),
    u16("device", 0x02),
    u16("command", 0x04),
    bits("io", 0x04, 2, 0),
    bits("memory", 0x04, 2, 1, doc="answers accesses of its BARs"),
    bits("bus_master", 0x04, 2, 2, doc="may start accesses"),
    bits("parity_response", 0x04, 2, 6),
    bits("serr", 0x04, 2, 8),
    bits("interrupt_disable", 0x04, 2, 10),
    u16("status", 0x06),
    bits("capability_list", 0x06, 2, 4),
    u8("revision", 0x08),
    raw("class_code", 0x09, 3, "interface, subclass, class"),
    u8("cache_line_size", 0x0C),
    u8("latency_timer", 0x0D),
    u8("header_type", 0x0E),
    u8("bist", 0x0F),
    *(u32(f"bar{index}", 0x10 + 4 * index) for index in range(6)),
    u16("subsystem_vendor", 0x2C),
    u16("subsystem", 0x2E),
    u32("rom", 0x30),
    u8("capabilities", 0x34, "offset of the first capability"),
    u8("interrupt_line", 0x3C),
    u8("interrupt_pin", 0x3D),
    doc="Type 0 header.",
    source="PCI Local Bus 3.0, 6.1",
    order="little",
)

SERIAL_NUMBER = Struct(
    "SERIAL",
    12,
    bits("extended_id", 0, 4, 15, 0, "capability"),
    bits("extended_version", 0, 4, 19, 16),
    bits("extended_next", 0, 4, 31, 20, "offset of the next extended capability"),
    u32("low", 4, "lower half of the EUI-64"),
    u32("high", 8, "its upper half"),
    source="PCI Express base 3.0, 7.12",
    order="little",
)

VPD_OFFSET = 0x48
GATEWAY_ADDRESS = 0x58
GATEWAY_DATA = 0x5C
BOARD_REGISTERS: tuple[tuple[int, int, str], ...] = (
    (VPD_OFFSET, 1, "VPD id"),
    (VPD_OFFSET + 1, 1, "VPD next"),
    (VPD_OFFSET + 2, 2, "VPD address"),
    (VPD_OFFSET + 4, 4, "VPD word"),
    (GATEWAY_ADDRESS, 4, "BAR0 gateway address"),
    (GATEWAY_DATA, 4, "BAR0 gateway data"),
)
"""Offset, bytes and name of what only adapters have: vital product data, and a way to BAR0 through
configuration space, which tools use (mstflint `mtcr_ul/mtcr_ul_com.c: mtcr_pciconf_mread4_old`)."""

VENDOR_REGISTERS: tuple[tuple[int, int, str], ...] = (
    (VENDOR_OFFSET, 1, "VSC id"),
    (VENDOR_OFFSET + 1, 1, "VSC next"),
    (VENDOR_OFFSET + 2, 1, "VSC length"),
    (VENDOR_OFFSET + 3, 1, "VSC type"),
    (VENDOR_OFFSET + 0x04, 4, "VSC control"),
    (VENDOR_OFFSET + 0x08, 4, "VSC counter"),
    (VENDOR_OFFSET + 0x0C, 4, "VSC semaphore"),
    (VENDOR_OFFSET + 0x10, 4, "VSC address"),
    (VENDOR_OFFSET + 0x14, 4, "VSC data"),
)
"""Likewise of the vendor-specific capability of a ConnectX-5 (`VENDOR_CAPABILITY`)."""

REGISTER_NAMES: dict[tuple[str, int], str] = {
    ("PM", 2): "capabilities",
    ("PM", 4): "control and status",
    ("MSI-X", 2): "message control",
    ("PCIe", 0x02): "capabilities",
    ("PCIe", 0x04): "device capabilities",
    ("PCIe", 0x0C): "link capabilities",
    ("PCIe", 0x12): "link status",
    ("PCIe", 0x24): "device capabilities 2",
    ("PCIe", 0x2C): "link capabilities 2",
}
"""Names of registers of which only the bits are declared above.

The key is capability and offset in it.
"""

PORT_REGISTERS: dict[tuple[str, int], tuple[int, str]] = {
    ("PCIe", 0x14): (4, "slot capabilities"),
    ("PCIe", 0x18): (2, "slot control"),
    ("PCIe", 0x1A): (2, "slot status"),
    ("PCIe", 0x1C): (2, "root control"),
    ("PCIe", 0x1E): (2, "root capabilities"),
    ("PCIe", 0x20): (4, "root status"),
    ("PCIe", 0x34): (4, "slot capabilities 2"),
    ("PCIe", 0x38): (2, "slot control 2"),
    ("PCIe", 0x3A): (2, "slot status 2"),
}
"""Registers of ports, which an endpoint has as zeros and drivers read: bytes and names, by the same
(PCI Express base 3.0, 7.8)."""


def _head() -> list[Field]:
    return [u8("id", 0, "capability"), u8("next", 1, "offset of the next capability")]


PM_CAPABILITY = Struct(
    "PM",
    8,
    *_head(),
    bits("version", 2, 2, 2, 0),
    bits("power_state", 4, 2, 1, 0, "0 = D0, 3 = D3hot"),
    bits("no_soft_reset", 4, 2, 3, doc="state survives D3hot"),
    source="PCI Power Management 1.2",
    order="little",
)

EXPRESS_CAPABILITY = Struct(
    "EXPRESS",
    60,
    *_head(),
    bits("version", 0x02, 2, 3, 0),
    bits("port_type", 0x02, 2, 7, 4, "0 = endpoint"),
    bits("max_payload_supported", 0x04, 4, 2, 0, "128 << n bytes"),
    bits("extended_tag_supported", 0x04, 4, 5),
    bits("role_based_errors", 0x04, 4, 15),
    bits("function_reset", 0x04, 4, 28),
    u16("device_control", 0x08),
    bits("correctable_reporting", 0x08, 2, 0),
    bits("nonfatal_reporting", 0x08, 2, 1),
    bits("fatal_reporting", 0x08, 2, 2),
    bits("unsupported_reporting", 0x08, 2, 3),
    bits("relaxed_ordering", 0x08, 2, 4),
    bits("max_payload", 0x08, 2, 7, 5, "128 << n bytes"),
    bits("extended_tag", 0x08, 2, 8),
    bits("no_snoop", 0x08, 2, 11),
    bits("max_read_request", 0x08, 2, 14, 12, "128 << n bytes"),
    bits("initiate_reset", 0x08, 2, 15, doc="resets the function"),
    u16("device_status", 0x0A),
    bits("link_speed_max", 0x0C, 4, 3, 0, "3 = 8 GT/s"),
    bits("link_width_max", 0x0C, 4, 9, 4, "lanes"),
    u16("link_control", 0x10),
    bits("link_speed", 0x12, 2, 3, 0),
    bits("link_width", 0x12, 2, 9, 4),
    bits("completion_timeout_disable_supported", 0x24, 4, 4),
    u16("device_control2", 0x28),
    bits("link_speeds", 0x2C, 4, 7, 1, "one bit per speed"),
    u16("link_control2", 0x30),
    bits("target_link_speed", 0x30, 2, 3, 0),
    u16("link_status2", 0x32),
    source="PCI Express base 3.0, 7.8",
    order="little",
)

MSIX_CAPABILITY = Struct(
    "MSIX",
    12,
    *_head(),
    bits("table_size", 2, 2, 10, 0, "entries - 1"),
    bits("function_mask", 2, 2, 14),
    bits("enable", 2, 2, 15),
    u32("table", 4, "offset | BAR"),
    u32("pending", 8, "offset | BAR"),
    source="PCI Local Bus 3.0, 6.8.2",
    order="little",
)

VPD_CAPABILITY = Struct(
    "VPD",
    8,
    *_head(),
    bits("address", 2, 2, 14, 0, "offset in the vital product data"),
    bits("done", 2, 2, 15, doc="1 after a read, 0 after a write"),
    u32("word", 4, "the four bytes there"),
    source="PCI Local Bus 3.0, appendix I",
    order="little",
)
VENDOR_CAPABILITY = Struct(
    "VENDOR",
    VENDOR_BYTES,
    *_head(),
    u8("length", 2),
    u8("type", 3),
    u32("control", 0x04, "space that is wanted, and whether there is one"),
    u32("counter", 0x08, "value for the semaphore"),
    u32("semaphore", 0x0C, "0 = free"),
    u32("address", 0x10, "in the space; bit 31: done"),
    u32("data", 0x14),
    doc="A way to spaces of a ConnectX-5 for tools; no space is there, and it stays zeros.",
    source="core/lib/pci_vsc.h",
    order="little",
)


CAPABILITIES: dict[int, tuple[str, Struct]] = {
    0x40: ("PM", PM_CAPABILITY),
    0x60: ("PCIe", EXPRESS_CAPABILITY),
    0x9C: ("MSI-X", MSIX_CAPABILITY),
}
"""Offset, name and layout of the capabilities, which are at the same offsets in every function.

They are those of a ConnectX-3, which has two more parts in between: `BOARD_REGISTERS`.
"""
