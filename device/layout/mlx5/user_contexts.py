"""User contexts and memory of users (DevX): programs that send firmware commands themselves.

Linux `ib/devx.c`, `mlx5_ifc.h`. Fields that Linux leaves to programs are as rdma-core's tests of
mlx5 have them.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from bluebridge.device.layout.fields import Struct, u32, u64, word
from bluebridge.device.layout.mlx5.objects import LIST

PRIVILEGED: Final = 0
"""`uid` of a driver's own commands, which may do all to every object."""
SHARED: Final = 0xFFFF
"""`uid` of objects that a driver makes for all user contexts (MLX5_SHARED_RESOURCE_UID)."""


class UserRight(IntFlag):
    """Rights of a user context (mlx5_ifc.h: MLX5_UCTX_CAP_*)."""

    RAW_SEND = 1 << 0
    DEVICE_RESOURCES = 1 << 1


CREATE_UCTX = Struct(
    "CREATE_UCTX",
    0x40,
    u32("rights", 0x10, "UserRight"),
    doc="The context's number, `uid`, is at 8 of the output, and of the input of DESTROY_UCTX.",
    source="mlx5_ifc.h: mlx5_ifc_create_uctx_in_bits, mlx5_ifc_uctx_bits",
)
CREATE_UMEM = Struct(
    "CREATE_UMEM",
    0x30,
    word("ats", 0x20, 31, doc="addresses are the device's own to translate"),
    word("log_page_size", 0x20, 4, 0, "of the list of pages, above 4 KiB"),
    u32("page_offset", 0x24, "of the memory in its first page, in bytes"),
    u64("pages", 0x28, "entries of the list that follows"),
    source="mlx5_ifc.h: mlx5_ifc_create_umem_in_bits, mlx5_ifc_umem_bits",
)
RING_UMEM = Struct(
    "RING_UMEM",
    LIST,
    u64("ring_umem_offset", 0x50),
    u32("ring_umem", 0x58),
    word("ring_umem_valid", 0x5C, 31, doc="the ring is in memory of a user"),
    doc="Part of the inputs of CREATE_CQ, MODIFY_CQ and CREATE_XRC_SRQ.",
    source="mlx5_ifc.h: mlx5_ifc_create_cq_in_bits; rdma-core's tests: CreateCqIn",
)
GENERAL_OBJECT = Struct(
    "GENERAL_OBJECT",
    0x10,
    word("type", 0x04, 31, 16, "kind of the object"),
    u32("number", 0x08),
    source="mlx5_ifc.h: mlx5_ifc_general_obj_in_cmd_hdr_bits",
)
