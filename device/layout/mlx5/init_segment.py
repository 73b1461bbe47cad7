"""BAR0 of a ConnectX-5: initialization segment, health buffer, MSI-X, pages of doorbells."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.blueflame import HEAD_BYTES
from bluebridge.device.layout.fields import Access, Register, RegisterBlock

BAR0_SIZE: Final = 32 << 20
SEGMENT_SIZE: Final = 0x2010
MSIX_VECTORS: Final = 32
MSIX_TABLE_OFFSET: Final = 0x10000
MSIX_PBA_OFFSET: Final = 0x18000

COMMAND_INTERFACE: Final = 5
"""The revision that drivers compare with theirs (core/cmd.c: CMD_IF_REV)."""
LOG_QUEUE_ENTRIES: Final = 5
LOG_ENTRY_SIZE: Final = 6

FIRMWARE: Final = 0x000
INTERFACE: Final = 0x004
QUEUE_HIGH: Final = 0x010
QUEUE_LOW: Final = 0x014
DOORBELL: Final = 0x018
INITIALIZING: Final = 0x1FC
HEALTH: Final = 0x200
TIMER_HIGH: Final = 0x1000
TIMER_LOW: Final = 0x1004
HEALTH_COUNTER: Final = 0x1010
REAL_TIME: Final = 0x1040

NIC_DISABLED: Final = 1
NIC_SOFTWARE_RESET: Final = 7
"""Values of `nic_interface`, beside 0 for a working interface (include/linux/mlx5/device.h)."""

_RO, _RW, _WO = Access.RO, Access.RW, Access.WO

INIT_SEGMENT = RegisterBlock(
    "INIT",
    bar=0,
    base=0,
    size=SEGMENT_SIZE,
    registers=(
        Register("fw_rev", FIRMWARE, 32, _RO, "firmware version, first two parts",
                 fields={"minor": (31, 16), "major": (15, 0)}),
        Register("cmdif_rev_fw_sub", INTERFACE, 32, _RO, "revision of the command interface, "
                 "third part of the firmware version",
                 fields={"cmdif_rev": (31, 16), "subminor": (15, 0)}),
        Register("cmdq_addr_h", QUEUE_HIGH, 32, _RW, "address of the command queue, upper half"),
        Register("cmdq_addr_l_sz", QUEUE_LOW, 32, _RW, "lower half, and what the queue is like",
                 fields={"address": (31, 12), "nic_interface": (10, 8), "log_size": (7, 4),
                         "log_stride": (3, 0)}),
        Register("cmd_dbell", DOORBELL, 32, _WO, "a bit for each entry of the queue to carry out"),
        Register("initializing", INITIALIZING, 32, _RO, "bit 31: the firmware is not ready yet",
                 fields={"initializing": 31, "fw_reset_supported": 30,
                         "nic_interface_supported": (26, 24), "embedded_cpu": 23}),
        Register("cmd_timeout", 0xFF8, 32, _RO, "time-out of commands; 0 = the driver's own"),
        Register("cmdq_init_timeout", 0xFFC, 32, _RO, "that of the command queue's start"),
        Register("internal_timer_h", TIMER_HIGH, 32, _RO, "free running clock, upper half"),
        Register("internal_timer_l", TIMER_LOW, 32, _RO, "its lower half"),
        Register("health_counter", HEALTH_COUNTER, 32, _RO, "changes as long as firmware works"),
        Register("real_time_h", REAL_TIME, 32, _RO, "seconds"),
        Register("real_time_l", REAL_TIME + 4, 32, _RO, "nanoseconds"),
        Register("ieee1588_clk", 0x2000, 64, _RO, "not used"),
        Register("ieee1588_clk_type", 0x2008, 32, _RO, "not used"),
        Register("clr_intx", 0x200C, 32, _WO, "not used, as there is MSI-X only"),
    ),
    doc="Initialization segment: start, command queue, clock, health counter.",
    source="include/linux/mlx5/device.h: mlx5_init_seg",
)  # fmt: skip

HEALTH_BUFFER = RegisterBlock(
    "HEALTH",
    bar=0,
    base=HEALTH,
    size=64,
    registers=(
        *(Register(f"assert_var{index}", 4 * index, 32, _RO, "of an assertion that failed")
          for index in range(6)),
        Register("assert_exit_ptr", 0x20, 32, _RO, "where it stands"),
        Register("assert_callra", 0x24, 32, _RO, "who called it"),
        Register("time", 0x2C, 32, _RO, "when"),
        Register("fw_ver", 0x30, 32, _RO, "all ones if the adapter does not answer"),
        Register("hw_id", 0x34, 32, _RO, ""),
        Register("state", 0x38, 32, _RO, "of the firmware",
                 fields={"rfr": 31, "valid": 27, "severity": (26, 24)}),
        Register("syndrome", 0x3C, 32, _RO, "why it failed",
                 fields={"irisc": (31, 24), "synd": (23, 16), "ext_synd": (15, 0)}),
    ),
    doc="Health buffer, which drivers look at every two seconds.",
    source="include/linux/mlx5/device.h: health_buffer; core/health.c: poll_health",
)  # fmt: skip

UAR_BYTES: Final = 4096
FIRST_UAR: Final = 0x100
"""The number of the first page of doorbells; a page's offset in BAR0 is number * 4096."""
UARS: Final = BAR0_SIZE // UAR_BYTES - FIRST_UAR
UAR_AREA: Final = FIRST_UAR * UAR_BYTES
"""Offset of the first page of doorbells in BAR0."""
CQ_DOORBELL: Final = 0x20
EQ_ARM: Final = 0x40
EQ_UPDATE: Final = 0x48
LOG_BLUEFLAME_REGISTER: Final = 9
BLUEFLAME_BUFFER: Final = 1 << (LOG_BLUEFLAME_REGISTER - 1)
"""Bytes of either half of a register for sends."""
SEND_DOORBELL: Final = 0x800
"""Offset of the first register for sends; each has two halves, used in turn."""

UAR = RegisterBlock(
    "UAR",
    bar=0,
    base=UAR_AREA,
    size=UAR_BYTES,
    registers=(
        Register("cq_arm", CQ_DOORBELL, 64, _WO, "request an event of a completion queue",
                 fields={"sn": (61, 60), "solicited": 56, "ci": (55, 32), "cqn": (23, 0)}),
        Register("eq_arm", EQ_ARM, 32, _WO, "entries consumed; request an interrupt",
                 fields={"eqn": (31, 24), "ci": (23, 0)}),
        Register("eq_update", EQ_UPDATE, 32, _WO, "entries consumed",
                 fields={"eqn": (31, 24), "ci": (23, 0)}),
        *(Register(f"send{at // BLUEFLAME_BUFFER}", SEND_DOORBELL + at, 64, _WO,
                   "the first 8 bytes of the last entry that was posted",
                   fields={"wqe_index": (55, 40), "opcode": (39, 32), "qpn": (31, 8)})
          for at in range(0, 0x800, BLUEFLAME_BUFFER)),
        *(Register(f"entry{at // BLUEFLAME_BUFFER}", SEND_DOORBELL + HEAD_BYTES + at,
                   (BLUEFLAME_BUFFER - HEAD_BYTES) * 8, _WO,
                   "the rest of an entry that is stored whole (BlueFlame)")
          for at in range(0, 0x800, BLUEFLAME_BUFFER)),
    ),
    doc="A page of doorbells.",
    source="core/uar.c, core/lib/eq.h: eq_update_ci, include/linux/mlx5/cq.h: mlx5_cq_arm",
    stride=UAR_BYTES,
    count=UARS,
)  # fmt: skip

BLOCKS = (HEALTH_BUFFER, INIT_SEGMENT, UAR)
"""All registers of BAR0 that drivers use."""
