"""On-demand paging: what it is offered for, kinds of page faults, the answer to them.

Linux `include/linux/mlx5/mlx5_ifc.h: odp_cap, page_fault_resume_in`, `ib/odp.c`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Field, Struct, bits, word

RDMA_FAULT: Final = 4
RDMA_WRITES: Final = 2
"""Bits of the type of a page fault of sub-type RDMA (inc/driver.h: MLX5_PFAULT_*)."""

PAGE_FAULT_RESUME = Struct(
    "PAGE_FAULT_RESUME",
    0x10,
    bits("error", 0x08, 4, 31, doc="the pages do not come"),
    bits("fault", 0x08, 4, 26, 24, "type of the event"),
    bits("queue", 0x08, 4, 23, 0, "of the event; of sub-type RDMA its token"),
    bits("token", 0x0C, 4, 23, 0),
    source="mlx5_ifc.h: page_fault_resume_in, trans_page_fault_info",
)


def _transport(name: str, at: int) -> tuple[Field, ...]:
    services = ("send", "receive", "write", "read", "atomic", "srq_receive")
    return tuple(word(f"{name}_{service}", at, 31 - n) for n, service in enumerate(services))


ODP = Struct(
    "CAP_ODP",
    0x1000,
    *_transport("rc", 0x10),
    *_transport("uc", 0x14),
    *_transport("ud", 0x18),
    *_transport("xrc", 0x1C),
    word("mem_page_fault", 0xC0, 31, doc="events name a key in place of a queue"),
    doc="What may meet absent pages, by service of the queue pair.",
    source="mlx5_ifc.h: odp_cap",
)


class WqeFault(IntEnum):
    """The kinds of work whose page fault has sub-type WQE (inc/device.h: MLX5_WQE_PF_TYPE_*)."""

    SRQ = 0
    SEND = 1
    """Data that a send queue sends."""
    RECEIVE = 2
    READ = 3
    """Where the answer of a read or an atomic goes."""
