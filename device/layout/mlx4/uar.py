"""BAR2 of a ConnectX-3: user access region pages with doorbells, then BlueFlame pages."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.fields import Access, Register, RegisterBlock

PAGE_SIZE: Final = 4096
UAR_AREA_SIZE: Final = 8 << 20
UAR_AREA_CODE: Final = 3  # QUERY_DEV_CAP[0x49]: 1 << (code + 20) bytes
BAR2_SIZE: Final = 16 << 20  # followed by as many BlueFlame pages
NUM_UARS = UAR_AREA_SIZE // PAGE_SIZE
RESERVED_UARS: Final = 128  # EQ doorbells only

SEND_DOORBELL: Final = 0x14
CQ_DOORBELL: Final = 0x20
EQ_DOORBELL: Final = 0x800  # + 8 * (eqn & 3), page eqn // 4

CQ_ARM_SOLICITED: Final = 1
CQ_ARM_NEXT: Final = 2
CQ_ARM_COUNT: Final = 3
EQ_ARM: Final = 1 << 31

UAR = RegisterBlock(
    "UAR",
    bar=2,
    base=0,
    size=PAGE_SIZE,
    stride=PAGE_SIZE,
    count=NUM_UARS,
    doc="one page per user of the device",
    source="inc/cq.h: mlx4_cq_arm; ib/qp.c; core/eq.c: eq_set_ci",
    registers=(
        Register("send", SEND_DOORBELL, 32, Access.WO, "new send WQEs", fields={"qpn": (31, 8)}),
        Register(
            "cq_arm",
            CQ_DOORBELL,
            64,
            Access.WO,
            "ask for an event: command 1 next solicited, 2 next one, 3 that with index ci",
            fields={"sn": (61, 60), "cmd": (57, 56), "cqn": (55, 32), "ci": (23, 0)},
        ),
        *(
            Register(
                f"eq{slot}",
                EQ_DOORBELL + 8 * slot,
                32,
                Access.WO,
                f"consumer index of the event queue 4*page+{slot}, and its re-arming",
                fields={"arm": 31, "ci": (23, 0)},
            )
            for slot in range(4)
        ),
    ),
)

LOG_BLUEFLAME_REGISTER: Final = 9
BLUEFLAME_BUFFER = 1 << (LOG_BLUEFLAME_REGISTER - 1)  # software alternates between two halves

BLUEFLAME = RegisterBlock(
    "BLUEFLAME",
    bar=2,
    base=UAR_AREA_SIZE,
    size=PAGE_SIZE,
    stride=PAGE_SIZE,
    count=NUM_UARS,
    doc="one page per UAR page, of the same index: whole send entries instead of a doorbell",
    source="core/main.c: map_bf_area; core/en_tx.c: mlx4_bf_copy; lib/qp.c: mlx4_post_send",
    registers=tuple(
        Register(
            f"buffer{slot}",
            slot * BLUEFLAME_BUFFER,
            BLUEFLAME_BUFFER * 8,
            Access.WO,
            "a send entry in ascending stores, its length rounded up to 64 bytes",
        )
        for slot in range(PAGE_SIZE // BLUEFLAME_BUFFER)
    ),
)

BLOCKS = (UAR, BLUEFLAME)


def blueflame_page(offset: int) -> int:
    """Return the UAR page that belongs to an offset of BAR2 behind the UAR pages."""
    return (offset - UAR_AREA_SIZE) // PAGE_SIZE


def send_doorbell(qpn: int) -> int:
    """Return the value of the send doorbell for `qpn`."""
    return (qpn & 0xFFFFFF) << 8


def cq_doorbell(sn: int, command: int, cqn: int, ci: int) -> int:
    """Return the 64-bit value of the CQ doorbell."""
    return ((sn & 3) << 28 | command << 24 | cqn) << 32 | (ci & 0xFFFFFF)


def eq_doorbell_offset(eqn: int) -> int:
    """Return the offset in BAR2 of the doorbell of event queue `eqn`."""
    return (eqn // 4) * PAGE_SIZE + EQ_DOORBELL + 8 * (eqn & 3)
