"""Registers of ACCESS_REG that belong to the adapter as a whole; their numbers, all of them.

Linux `include/linux/mlx5/driver.h: MLX5_REG_*`, `mlx5_ifc.h`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u32


class RegisterId(IntEnum):
    """Numbers of registers that drivers use."""

    QPTS = 0x4002
    QETCR = 0x4005
    QTCT = 0x400A
    QPDPM = 0x4013
    QCAM = 0x4019
    DCBX_PARAM = 0x4020
    DCBX_APP = 0x4021
    PCAP = 0x5001
    PMLP = 0x5002
    PMTU = 0x5003
    PTYS = 0x5004
    PAOS = 0x5006
    PFCC = 0x5007
    PPCNT = 0x5008
    PPTB = 0x500B
    PBMC = 0x500C
    PMAOS = 0x5012
    PUDE = 0x5009
    PVLC = 0x500F
    PPLM = 0x5023
    PMPE = 0x5010
    PELC = 0x500E
    PDDR = 0x5031
    PCMR = 0x5041
    PCAM = 0x507F
    NODE_DESC = 0x6001
    HOST_ENDIANNESS = 0x7004
    MTCAP = 0x9009
    MTMP = 0x900A
    MCIA = 0x9014
    MFRL = 0x9028
    MLCR = 0x902B
    MRTC = 0x902D
    MTRC_CAP = 0x9040
    MPCNT = 0x9051
    MTPPS = 0x9053
    MTPPSE = 0x9054
    MTUTC = 0x9055
    MPEGC = 0x9056
    MPIR = 0x9059
    MCQS = 0x9060
    MCQI = 0x9061
    MCC = 0x9062
    MCDA = 0x9063
    MCAM = 0x907F
    DTOR = 0xC00E


NODE_DESC = Struct("NODE_DESC", 64, raw("text", 0, 64), source="ib/main.c: mlx5_query_node_desc")

MCAM = Struct(
    "MCAM",
    0x48,
    u8("feature_group", 0x01),
    u8("access_reg_group", 0x03),
    raw("registers", 0x08, 16, "bit n, counted from the end: register 0x9000 + n is there"),
    raw("features", 0x28, 16),
    doc="Which management registers there are.",
    source="mlx5_ifc.h: mcam_reg, mcam_access_reg_bits",
)

BOOT_IMAGE: Final = 1
"""`identifier` of the firmware itself (core/fw.c: mlx5_fw_component)."""
MCQS = Struct(
    "MCQS",
    0x10,
    bits("last", 0x00, 4, 31),
    bits("component", 0x00, 4, 15, 0, "index"),
    bits("identifier", 0x04, 4, 15, 0, "1 = boot image"),
    bits("status", 0x08, 4, 8, 4, "0 = absent, 1 = in use"),
    bits("update_state", 0x08, 4, 3, 0),
    doc="A part of the firmware, by its index.",
    source="mlx5_ifc.h: mcqs_reg",
)

INFO_CAPABILITIES, INFO_VERSION = 0, 1
MCQI_DATA_OFFSET: Final = 0x18
MCQI = Struct(
    "MCQI",
    MCQI_DATA_OFFSET,
    bits("pending", 0x00, 4, 31, doc="of the version that waits for a reset"),
    bits("component", 0x00, 4, 15, 0, "index"),
    bits("info_type", 0x08, 4, 4, 0, "0 = capabilities, 1 = version"),
    u32("info_size", 0x0C),
    u32("offset", 0x10),
    bits("data_size", 0x14, 4, 15, 0),
    doc="What is known of a part of the firmware; the data follows.",
    source="mlx5_ifc.h: mcqi_reg",
)
MCQI_VERSION = Struct(
    "MCQI_VERSION",
    0x7C,
    bits("version_string_length", 0x00, 4, 7, 0),
    u32("version", 0x04, "a byte for major and minor, two for the third part"),
    raw("version_string", 0x20, 92),
    source="mlx5_ifc.h: mcqi_version",
)


def register_name(number: int) -> str:
    """Return the name of a register, or its number in hex."""
    try:
        return RegisterId(number).name
    except ValueError:
        return f"{number:#06x}"
