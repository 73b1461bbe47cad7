"""Firmware commands: the entry of the queue, mailboxes, opcodes, statuses, objects of commands.

Linux `core/cmd.c`, `include/linux/mlx5/device.h: mlx5_cmd_layout, mlx5_cmd_prot_block`,
`include/linux/mlx5/mlx5_ifc.h`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u32, u64


class Opcode(IntEnum):
    """The opcodes of firmware commands that drivers of an adapter without e-switch know."""

    MOD_UPDATE_HEADER_MODIFY_ARGUMENT = 0x1
    QUERY_HCA_CAP = 0x100
    QUERY_ADAPTER = 0x101
    INIT_HCA = 0x102
    TEARDOWN_HCA = 0x103
    ENABLE_HCA = 0x104
    DISABLE_HCA = 0x105
    QUERY_PAGES = 0x107
    MANAGE_PAGES = 0x108
    SET_HCA_CAP = 0x109
    QUERY_ISSI = 0x10A
    SET_ISSI = 0x10B
    SET_DRIVER_VERSION = 0x10D
    CREATE_MKEY = 0x200
    QUERY_MKEY = 0x201
    DESTROY_MKEY = 0x202
    QUERY_SPECIAL_CONTEXTS = 0x203
    PAGE_FAULT_RESUME = 0x204
    CREATE_EQ = 0x301
    DESTROY_EQ = 0x302
    QUERY_EQ = 0x303
    GEN_EQE = 0x304
    CREATE_CQ = 0x400
    DESTROY_CQ = 0x401
    QUERY_CQ = 0x402
    MODIFY_CQ = 0x403
    CREATE_QP = 0x500
    DESTROY_QP = 0x501
    RST2INIT_QP = 0x502
    INIT2RTR_QP = 0x503
    RTR2RTS_QP = 0x504
    RTS2RTS_QP = 0x505
    SQERR2RTS_QP = 0x506
    TOERR_QP = 0x507
    TORST_QP = 0x50A
    QUERY_QP = 0x50B
    SQD_RTS_QP = 0x50C
    MAD_IFC = 0x50D
    INIT2INIT_QP = 0x50E
    CREATE_SRQ = 0x700
    DESTROY_SRQ = 0x701
    QUERY_SRQ = 0x702
    ARM_RQ = 0x703
    CREATE_XRC_SRQ = 0x705
    DESTROY_XRC_SRQ = 0x706
    QUERY_XRC_SRQ = 0x707
    ARM_XRC_SRQ = 0x708
    CREATE_DCT = 0x710
    DESTROY_DCT = 0x711
    DRAIN_DCT = 0x712
    QUERY_DCT = 0x713
    ARM_DCT_FOR_KEY_VIOLATION = 0x714
    QUERY_ESW_FUNCTIONS = 0x740
    QUERY_VPORT_STATE = 0x750
    MODIFY_VPORT_STATE = 0x751
    QUERY_ESW_VPORT_CONTEXT = 0x752
    MODIFY_ESW_VPORT_CONTEXT = 0x753
    QUERY_NIC_VPORT_CONTEXT = 0x754
    MODIFY_NIC_VPORT_CONTEXT = 0x755
    QUERY_ROCE_ADDRESS = 0x760
    SET_ROCE_ADDRESS = 0x761
    QUERY_HCA_VPORT_CONTEXT = 0x762
    MODIFY_HCA_VPORT_CONTEXT = 0x763
    QUERY_HCA_VPORT_GID = 0x764
    QUERY_HCA_VPORT_PKEY = 0x765
    QUERY_VNIC_ENV = 0x76F
    QUERY_VPORT_COUNTER = 0x770
    ALLOC_Q_COUNTER = 0x771
    DEALLOC_Q_COUNTER = 0x772
    QUERY_Q_COUNTER = 0x773
    ALLOC_PD = 0x800
    DEALLOC_PD = 0x801
    ALLOC_UAR = 0x802
    DEALLOC_UAR = 0x803
    ACCESS_REG = 0x805
    ATTACH_TO_MCG = 0x806
    DETACH_FROM_MCG = 0x807
    QUERY_MAD_DEMUX = 0x80B
    SET_MAD_DEMUX = 0x80C
    NOP = 0x80D
    ALLOC_XRCD = 0x80E
    DEALLOC_XRCD = 0x80F
    ALLOC_TRANSPORT_DOMAIN = 0x816
    DEALLOC_TRANSPORT_DOMAIN = 0x817
    QUERY_CONG_STATUS = 0x822
    MODIFY_CONG_STATUS = 0x823
    QUERY_CONG_PARAMS = 0x824
    MODIFY_CONG_PARAMS = 0x825
    QUERY_CONG_STATISTICS = 0x826
    QUERY_LAG = 0x842
    CREATE_TIR = 0x900
    MODIFY_TIR = 0x901
    DESTROY_TIR = 0x902
    QUERY_TIR = 0x903
    CREATE_SQ = 0x904
    MODIFY_SQ = 0x905
    DESTROY_SQ = 0x906
    QUERY_SQ = 0x907
    CREATE_RQ = 0x908
    MODIFY_RQ = 0x909
    DESTROY_RQ = 0x90A
    QUERY_RQ = 0x90B
    CREATE_RMP = 0x90C
    MODIFY_RMP = 0x90D
    DESTROY_RMP = 0x90E
    QUERY_RMP = 0x90F
    CREATE_TIS = 0x912
    MODIFY_TIS = 0x913
    DESTROY_TIS = 0x914
    QUERY_TIS = 0x915
    CREATE_RQT = 0x916
    MODIFY_RQT = 0x917
    DESTROY_RQT = 0x918
    QUERY_RQT = 0x919
    SET_FLOW_TABLE_ROOT = 0x92F
    CREATE_FLOW_TABLE = 0x930
    DESTROY_FLOW_TABLE = 0x931
    QUERY_FLOW_TABLE = 0x932
    CREATE_FLOW_GROUP = 0x933
    DESTROY_FLOW_GROUP = 0x934
    QUERY_FLOW_GROUP = 0x935
    SET_FLOW_TABLE_ENTRY = 0x936
    QUERY_FLOW_TABLE_ENTRY = 0x937
    DELETE_FLOW_TABLE_ENTRY = 0x938
    ALLOC_FLOW_COUNTER = 0x939
    DEALLOC_FLOW_COUNTER = 0x93A
    QUERY_FLOW_COUNTER = 0x93B
    MODIFY_FLOW_TABLE = 0x93C
    ALLOC_PACKET_REFORMAT_CONTEXT = 0x93D
    DEALLOC_PACKET_REFORMAT_CONTEXT = 0x93E
    QUERY_PACKET_REFORMAT_CONTEXT = 0x93F
    ALLOC_MODIFY_HEADER_CONTEXT = 0x940
    DEALLOC_MODIFY_HEADER_CONTEXT = 0x941
    QUERY_MODIFY_HEADER_CONTEXT = 0x942
    CREATE_GENERAL_OBJECT = 0xA00
    MODIFY_GENERAL_OBJECT = 0xA01
    QUERY_GENERAL_OBJECT = 0xA02
    DESTROY_GENERAL_OBJECT = 0xA03
    CREATE_UCTX = 0xA04
    DESTROY_UCTX = 0xA06
    CREATE_UMEM = 0xA08
    DESTROY_UMEM = 0xA0A
    GENERAL_START = 0xB00
    GENERAL_END = 0xD00


class Status(IntEnum):
    """The status of a command in the first byte of its output (core/cmd.c: cmd_status_str)."""

    OK = 0x00
    INTERNAL_ERR = 0x01
    BAD_OP = 0x02
    BAD_PARAM = 0x03
    BAD_SYS_STATE = 0x04
    BAD_RES = 0x05
    RES_BUSY = 0x06
    NOT_READY = 0x07
    LIM_ERR = 0x08
    BAD_RES_STATE = 0x09
    BAD_INDEX = 0x0A
    NO_RESOURCES = 0x0F
    BAD_QP_STATE = 0x10
    BAD_PKT = 0x30
    BAD_SIZE = 0x40
    BAD_INP_LEN = 0x50
    BAD_OUTP_LEN = 0x51


class Delivery(IntEnum):
    """Delivery statuses of a command queue's entry (core/cmd.c: deliv_status_to_str)."""

    OK = 0x00
    SIGNATURE = 0x01
    TOKEN = 0x02
    BLOCK_NUMBER = 0x03
    OUT_POINTER = 0x04
    IN_POINTER = 0x05
    FIRMWARE = 0x06
    IN_LENGTH = 0x07
    OUT_LENGTH = 0x08
    RESERVED_NOT_ZERO = 0x09
    DESCRIPTOR = 0x10


PCI_TRANSPORT: Final = 7
"""The `type` of every entry."""
INLINE_BYTES: Final = 16
"""Bytes of input and of output that stand in the entry; what follows them is in mailboxes."""
BLOCK_BYTES: Final = 512
"""Bytes of data in one mailbox."""
MAILBOX_ALIGNMENT: Final = 1024

ENTRY = Struct(
    "CMD_ENTRY",
    64,
    u8("type", 0x00, "7 = PCI"),
    u32("input_length", 0x04, "bytes of the whole input"),
    u64("input_mailbox", 0x08, "address of the first block, 0 for none"),
    raw("input", 0x10, INLINE_BYTES, "first bytes of the input"),
    raw("output", 0x20, INLINE_BYTES, "first bytes of the output"),
    u64("output_mailbox", 0x30, "address of the first block, 0 for none"),
    u32("output_length", 0x38, "bytes of the whole output"),
    u8("token", 0x3C, "mailboxes of the entry carry the same"),
    u8("signature", 0x3D, "the exclusive or of all 64 bytes is 0xff"),
    bits("delivery", 0x3F, 1, 7, 1, "delivery status"),
    bits("owner", 0x3F, 1, 0, doc="1 = hardware"),
    doc="An entry of the command queue.",
    source="include/linux/mlx5/device.h: mlx5_cmd_layout",
)

MAILBOX = Struct(
    "CMD_MAILBOX",
    0x240,
    raw("data", 0x000, BLOCK_BYTES),
    u64("next", 0x230, "address of the next block"),
    u32("number", 0x238, "of the block in its chain, from 0"),
    u8("token", 0x23D),
    u8("control_signature", 0x23E),
    u8("signature", 0x23F),
    doc="A block of input or output behind the bytes in the entry.",
    source="include/linux/mlx5/device.h: mlx5_cmd_prot_block",
)

INPUT = Struct(
    "CMD_IN",
    INLINE_BYTES,
    bits("opcode", 0x00, 4, 31, 16),
    bits("uid", 0x00, 4, 15, 0, "user context (DevX)"),
    bits("op_mod", 0x04, 4, 15, 0),
    bits("number", 0x08, 4, 23, 0, "of the object, in most commands on one"),
    doc="The beginning of the input of every command.",
    source="mlx5_ifc.h",
)

OUTPUT = Struct(
    "CMD_OUT",
    INLINE_BYTES,
    u8("status", 0x00),
    u32("syndrome", 0x04, "why, in the words of the firmware"),
    bits("number", 0x08, 4, 23, 0, "of the object, in commands that make one"),
    doc="The beginning of the output of every command.",
    source="mlx5_ifc.h",
)


_WORDS: Final = {
    "MKEY": "mkey", "EQ": "eqn", "CQ": "cqn", "QP": "qpn", "XRC_SRQ": "srqn", "RMP": "rmpn",
    "SQ": "sqn", "RQ": "rqn", "TIS": "tisn", "TIR": "tirn", "RQT": "rqtn", "PD": "pd", "UAR": "uar",
    "XRCD": "xrcd", "TRANSPORT_DOMAIN": "td", "Q_COUNTER": "counter", "FLOW_TABLE": "table",
    "FLOW_GROUP": "group", "FLOW_COUNTER": "flow_counter", "UMEM": "umem", "UCTX": "uid",
}  # fmt: skip
"""The word for the number of an object, by the end of the names of its commands."""
_ELSEWHERE: Final = {
    Opcode.QUERY_Q_COUNTER: 0x1C, Opcode.DESTROY_FLOW_TABLE: 0x14, Opcode.MODIFY_FLOW_TABLE: 0x14,
    Opcode.DESTROY_FLOW_GROUP: 0x18, Opcode.QUERY_FLOW_COUNTER: 0x1C,
}  # fmt: skip
"""Offsets of numbers that are not at 8, in the input."""


class Place(NamedTuple):
    """The place of an object's number in a command: output or input, and the byte offset."""

    word: str
    offset: int
    made: bool = False

    def number(self, data: bytes) -> int:
        """Return the number in a command; that of a set of counters has 8 bits."""
        found = int.from_bytes(data[self.offset : self.offset + 4], "big")
        return found & (0xFF if self.word == "counter" else 0xFFFFFF)


def _place(opcode: Opcode) -> Place | None:
    ends = (end for end in _WORDS if opcode.name.endswith(f"_{end}"))
    end = max(ends, key=len, default=None)  # an XRC_SRQ is no RQ
    if end is None:
        return None
    made = opcode.name.startswith(("CREATE_", "ALLOC_"))
    return Place(_WORDS[end], _ELSEWHERE.get(opcode, 0x08), made)


OBJECTS: Final[dict[int, Place]] = {
    opcode: place for opcode in Opcode if (place := _place(opcode)) is not None
}
"""The place of the object's number by the command that makes, changes or ends it."""


def name_of(opcode: int) -> str:
    """Return the name of an opcode as drivers print it, or its number in hex."""
    try:
        name = Opcode(opcode).name
    except ValueError:
        return f"{opcode:#05x}"
    return name.replace("TO", "2", 1) if name in ("TOERR_QP", "TORST_QP") else name
