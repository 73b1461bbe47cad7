"""What tools find in BAR0 of a ConnectX-3: the gateway to its flash, and the image (FS2) in there.

Linux has none of it. Offsets are those that mstflint uses: `mflash/mflash.c` (gateway and
semaphores), `mlxfwops/lib/fs2_ops.cpp` and `flint_base.h` (image), `dev_mgt` (identity).
"""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Access, Register, RegisterBlock, Struct, bits, raw, u32
from bluebridge.device.layout.mlx4.bar0 import BAR0_SIZE

CHIP_OFFSET = 0xF0014
CHIP_CONNECTX3 = 0x1F5
CHIP_CONNECTX3_PRO = 0x1F7
SEMAPHORES_OFFSET = 0xF0300
SEMAPHORES = 64
RUNNING_OFFSET = 0x1F064
TOOLS_CONTROL_OFFSET = 0x80798
GATEWAY_OFFSET = 0xF0400
GATEWAY_DATA = 0x10
GATEWAY_DATA_BYTES = 16

BOARD = RegisterBlock(
    "BOARD",
    bar=0,
    base=0,
    size=BAR0_SIZE,
    doc="identity of the adapter for tools",
    source="mstflint dev_mgt; mlxfwops/lib/fs2_ops.cpp: getRunningFwVer",
    registers=(
        Register(
            "chip", CHIP_OFFSET, 32, Access.RO, "the chip, which has an id of its own",
            values={CHIP_CONNECTX3: "ConnectX-3", CHIP_CONNECTX3_PRO: "ConnectX-3 Pro"},
        ),
        Register("running_major", RUNNING_OFFSET, 32, Access.RO, "major version << 16"),
        Register("tools_control", TOOLS_CONTROL_OFFSET, 32, Access.RO, "tools' commands: refused"),
        Register("running_minor", RUNNING_OFFSET + 4, 32, Access.RO, "minor << 16 | subminor"),
    ),
)  # fmt: skip

SEMAPHORE = RegisterBlock(
    "SEMAPHORE",
    bar=0,
    base=SEMAPHORES_OFFSET,
    size=4,
    doc="semaphores of tools; `CTL.semaphore` is the last one",
    source="mstflint tools_res_mgmt/tools_res_mgmt.c: g_dev_sem_info_db",
    stride=4,
    count=SEMAPHORES,
    registers=(Register("taken", 0, 32, Access.RW, "0 = taken by the reader, 0 frees"),),
)

FLASH_COMMAND = Struct(
    "FLASH.COMMAND",
    4,
    bits("read", 0, 4, 0, doc="data come from the flash"),
    bits("has_opcode", 0, 4, 2, doc="send the opcode; without, go on with the last command"),
    bits("has_address", 0, 4, 3, doc="send the address"),
    bits("has_data", 0, 4, 4, doc="move data"),
    bits("hold", 0, 4, 5, doc="keep the flash selected afterwards"),
    bits("log_bytes", 0, 4, 10, 8, "1 << n bytes of data"),
    bits("bank", 0, 4, 12, 11, "which flash"),
    bits("opcode", 0, 4, 23, 16, "SpiOpcode"),
    bits("busy", 0, 4, 30, doc="starts the command; 0 when it is done"),
    source="mstflint mflash/mflash.c: CntxCrConstants",
)

FLASH = RegisterBlock(
    "FLASH",
    bar=0,
    base=GATEWAY_OFFSET,
    size=GATEWAY_DATA + GATEWAY_DATA_BYTES,
    doc="gateway to the flash",
    source="mstflint mflash/mflash.c: cntx_exec_cmd_get",
    registers=(
        Register(
            "command", 0x00, 32, Access.RW, "what the flash is told; busy starts it",
            fields={item.name: (item.high, item.low) for item in FLASH_COMMAND},
        ),
        Register("address", 0x04, 32, Access.RW, "address in the flash, 24 bits"),
        *(
            Register(f"data{place}", GATEWAY_DATA + 4 * place, 32, Access.RW, "data moved")
            for place in range(GATEWAY_DATA_BYTES // 4)
        ),
    ),
)  # fmt: skip


BLOCKS = (BOARD, FLASH, SEMAPHORE)


class SpiOpcode(IntEnum):
    """Opcode of a serial flash; those that write are not here."""

    READ = 0x03
    READ_STATUS = 0x05
    READ_FAST = 0x0B
    READ_STATUS2 = 0x35
    READ_ID = 0x9F


FLASH_MAGIC = bytes.fromhex("4d5446578cdfd000dead92704154beef")
LAST_SECTION = 0xFF000000
"""What stands in the last section for the offset of the next one."""

FLASH_IMAGE = Struct(
    "FLASH.IMAGE",
    0x38,
    raw("magic", 0x00, 16, "at the beginning of an image"),
    bits("image_crc", 0x20, 4, 15, 0, "of the whole image; all ones: not told"),
    bits("chunk_checksum", 0x28, 4, 31, 24, "the four bytes add up to 0"),
    bits("failsafe", 0x28, 4, 3, doc="there is room for two images, in chunks"),
    bits("log_chunk", 0x28, 4, 2, 0, "chunks of 0x10000 << n bytes"),
    bits("info_checksum", 0x2C, 4, 31, 24, "the four bytes add up to 0"),
    bits("info", 0x2C, 4, 23, 0, "offset of the contents of the section with the info"),
    u32("image_bytes", 0x30, "size of the image"),
    u32("guids", 0x34, "offset of the contents of the section with GUIDs and MACs"),
    doc="header of a firmware image",
    source="mstflint mlxfwops/lib/fs2_ops.cpp: Fs2Verify, Fs2Query",
)

FLASH_SECTION = Struct(
    "FLASH.SECTION",
    16,
    u32("section", 0x00, "FlashSection"),
    u32("words", 0x04, "size of the contents in words; the CRC follows them"),
    u32("following", 0x0C, "offset of the next section"),
    doc="header of a section of a firmware image",
    source="mstflint mlxfwops/lib/flint_base.h: GPH",
)

FLASH_LOADER = Struct(
    "FLASH.LOADER",
    8,
    u32("loader_words", 0x04, "size of the contents in words; three words and the CRC follow"),
    doc="header of the boot loader, between the image's header and its sections",
    source="mstflint mlxfwops/lib/fw_ops.cpp: CheckBoot2",
)


class FlashSection(IntEnum):
    """Type of a section of a firmware image."""

    GUIDS = 6
    INFO = 10


class FlashInfo(IntEnum):
    """Tag of an entry of the section with the info."""

    REVISION = 0
    FIRMWARE = 1
    BUILT = 2
    DEVICE = 3
    PSID = 4
    VSD = 5
    PRODUCT = 7
    VENDOR = 8
    RELEASED = 9
    CHIPS = 10
    END = 0xFF
