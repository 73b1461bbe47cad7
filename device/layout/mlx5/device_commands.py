"""Input and output of commands on the adapter as a whole, and of ACCESS_REG.

Offsets count from the start of input or output. Linux `mlx5_ifc.h`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u32

QUERY_ISSI = Struct(
    "QUERY_ISSI_OUT",
    0x70,
    bits("current", 0x08, 4, 15, 0),
    u32("supported", 0x6C, "bit n: revision n of the commands"),
    source="mlx5_ifc.h: query_issi_out",
)
SET_ISSI = Struct(
    "SET_ISSI_IN", 0x10, bits("current", 0x08, 4, 15, 0), source="mlx5_ifc.h: set_issi_in"
)
QUERY_PAGES = Struct(
    "QUERY_PAGES_OUT",
    0x10,
    bits("function_id", 0x08, 4, 15, 0),
    u32("count", 0x0C, "pages wanted; negative: to be taken back"),
    source="mlx5_ifc.h: query_pages_out",
)
PAGES_UNAVAILABLE, PAGES_GIVEN, TAKE_PAGES = 0, 1, 2
"""`op_mod` of MANAGE_PAGES."""
MANAGE_PAGES_IN = Struct(
    "MANAGE_PAGES_IN",
    0x10,
    bits("op_mod", 0x04, 4, 15, 0, "0 = cannot give, 1 = give, 2 = take back"),
    bits("function_id", 0x08, 4, 15, 0),
    u32("count", 0x0C),
    doc="A list of addresses follows.",
    source="mlx5_ifc.h: manage_pages_in",
)
MANAGE_PAGES_OUT = Struct(
    "MANAGE_PAGES_OUT",
    0x10,
    u32("count", 0x08),
    doc="A list of addresses follows.",
    source="mlx5_ifc.h: manage_pages_out",
)
ADAPTER_BLOCK_OFFSET: Final = 0x10
BOARD_ID_BYTES: Final = 16
QUERY_ADAPTER = Struct(
    "QUERY_ADAPTER_BLOCK",
    0x100,
    bits("ieee_vendor_id", 0x18, 4, 23, 0),
    bits("vsd_vendor_id", 0x1C, 4, 15, 0),
    raw("vsd", 0x20, 208),
    raw("board_id", 0xF0, BOARD_ID_BYTES, "PSID"),
    doc="Behind the first 16 bytes of the output of QUERY_ADAPTER.",
    source="mlx5_ifc.h: query_adapter_param_block",
)
DRIVER_VERSION = Struct(
    "SET_DRIVER_VERSION_IN",
    0x50,
    raw("text", 0x10, 64, "operating system, driver, version"),
    source="mlx5_ifc.h: set_driver_version_in",
)

REGISTER_WRITE, REGISTER_READ = 0, 1
"""`op_mod` of ACCESS_REG."""
ACCESS_REG = Struct(
    "ACCESS_REG_IN",
    0x10,
    bits("op_mod", 0x04, 4, 15, 0, "0 = write, 1 = read"),
    bits("register", 0x08, 4, 15, 0, "number of the register"),
    u32("argument", 0x0C),
    doc="The register follows, in input and output.",
    source="mlx5_ifc.h: access_register_in",
)
