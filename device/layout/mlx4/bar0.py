"""BAR0 of a ConnectX-3: command register, ownership, reset, semaphore (big-endian registers)."""

from __future__ import annotations

from bluebridge.device.layout.fields import Access, Register, RegisterBlock, Struct, raw, u32

BAR0_SIZE = 1 << 20
MSIX_TABLE_OFFSET = 0x7C000
MSIX_PBA_OFFSET = 0x7D000
MSIX_VECTORS = 32

HCR_BASE = 0x80680
OWNERSHIP_OFFSET = 0x8069C
RESET_OFFSET = 0xF0010
CLR_INT_OFFSET = 0xF00D8
SEMAPHORE_OFFSET = 0xF03FC
CATAS_OFFSET = 0x1F020
CATAS_DWORDS = 16
CATAS_LETTERS = 4 * CATAS_DWORDS - 4
"""Characters of the reason that follows the code in the error buffer."""
CATAS_CODE_INJECTED = 0x42420001
CLOCK_OFFSET = 0x8

RESET_VALUE = 1

HCR_GO = 1 << 23
HCR_EVENT = 1 << 22
HCR_TOGGLE = 1 << 21

HCR = RegisterBlock(
    "HCR",
    bar=0,
    base=HCR_BASE,
    size=0x1C,
    doc="host command register",
    source="core/cmd.c: mlx4_cmd_post, cmd_pending",
    registers=(
        Register("in_param_hi", 0x00, 32, Access.RW, "input parameter or mailbox address, 63:32"),
        Register("in_param_lo", 0x04, 32, Access.RW, "input parameter or mailbox address, 31:0"),
        Register("in_modifier", 0x08, 32, Access.RW, "object number, port or entry count"),
        Register("out_param_hi", 0x0C, 32, Access.RW, "output mailbox address or immediate, 63:32"),
        Register("out_param_lo", 0x10, 32, Access.RW, "output mailbox address or immediate, 31:0"),
        Register("token", 0x14, 32, Access.RW, "echoed in the event", fields={"token": (31, 16)}),
        Register(
            "control",
            0x18,
            32,
            Access.RW,
            "status, go, event, toggle, opcode; writing go starts the command",
            fields={
                "status": (31, 24),
                "go": 23,
                "event": 22,
                "toggle": 21,
                "op_modifier": (15, 12),
                "opcode": (11, 0),
            },
        ),
    ),
)

CONTROL = RegisterBlock(
    "CTL",
    bar=0,
    base=0,
    size=BAR0_SIZE,
    doc="single registers of BAR0",
    source="core/main.c: mlx4_get_ownership; core/reset.c; core/catas.c: poll_catas; core/eq.c",
    registers=(
        Register("ownership", OWNERSHIP_OFFSET, 32, Access.RW, "0 = free, else another driver's"),
        Register("reset", RESET_OFFSET, 32, Access.WO, "1 resets the device", values={1: "reset"}),
        Register("clr_int", CLR_INT_OFFSET, 64, Access.WO, "clears a pending INTx"),
        Register("semaphore", SEMAPHORE_OFFSET, 32, Access.RW, "0 = taken by the reader, 0 frees"),
        Register("catas", CATAS_OFFSET, 32, Access.RO, "error buffer, first dword; 0 = healthy"),
        Register("clock", CLOCK_OFFSET, 64, Access.RO, "free-running internal clock"),
    ),
)

CATAS = Struct(
    "CATAS",
    CATAS_DWORDS * 4,
    u32("code", 0, "0 = healthy; anything else is an internal error"),
    raw("text", 4, CATAS_LETTERS, "why, for people; opaque to drivers"),
    doc="catastrophic error buffer in BAR0, at the offset that QUERY_FW tells",
    source="core/catas.c: poll_catas, dump_err_buf",
)

BLOCKS = (HCR, CONTROL)
