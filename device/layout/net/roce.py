"""InfiniBand transport headers, which follow a GRH or a UDP header in RoCE.

`HEADERS` is the table that all packets are written and read by.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64
from bluebridge.device.layout.net.ip import IPV4_MAPPED

GRH_SIZE: Final = 40
GRH_NEXT_BTH: Final = 0x1B
GRH = Struct(
    "GRH",
    GRH_SIZE,
    bits("version", 0, 4, 31, 28, "6"),
    bits("traffic_class", 0, 4, 27, 20),
    bits("flow_label", 0, 4, 19, 0),
    u16("payload_length", 4, "bytes from after the GRH to the end of the ICRC"),
    u8("next_header", 6, "0x1B"),
    u8("hop_limit", 7),
    raw("sgid", 8, 16),
    raw("dgid", 24, 16),
    source="InfiniBand vol. 1, 8.3",
)


class BthOpcode(IntEnum):
    """BTH opcodes (transport in bits 7:5, operation in 4:0)."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_IMM = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_IMM = 0x05
    RC_WRITE_FIRST = 0x06
    RC_WRITE_MIDDLE = 0x07
    RC_WRITE_LAST = 0x08
    RC_WRITE_LAST_IMM = 0x09
    RC_WRITE_ONLY = 0x0A
    RC_WRITE_ONLY_IMM = 0x0B
    RC_READ_REQUEST = 0x0C
    RC_READ_RESPONSE_FIRST = 0x0D
    RC_READ_RESPONSE_MIDDLE = 0x0E
    RC_READ_RESPONSE_LAST = 0x0F
    RC_READ_RESPONSE_ONLY = 0x10
    RC_ACK = 0x11
    RC_ATOMIC_ACK = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_INV = 0x16
    RC_SEND_ONLY_INV = 0x17
    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_IMM = 0x65
    CNP = 0x81  # congestion notification, annex A17.9


RELIABLE_SERVICE: Final = 0x00
UNRELIABLE_SERVICE: Final = 0x20
XRC_SERVICE: Final = 0xA0
"""Value added to an opcode of the reliable connection for the same operation of XRC."""
CONGESTION_SERVICE: Final = 0x80
"""The same for CNPs, which are of no connection's service."""
SERVICE_MASK: Final = 0xE0
"""Mask of the service in an opcode; the other bits are the operation."""

PACKET_NAMES = {code & 0x1F: code.name.partition("_")[2] for code in BthOpcode if code < 0x20}
"""Names of the operations of packets, by the low bits of an opcode of a connection."""

BTH_SIZE: Final = 12
BTH = Struct(
    "BTH",
    BTH_SIZE,
    u8("opcode", 0, "BthOpcode"),
    bits("solicited", 1, 1, 7),
    bits("migrated", 1, 1, 6),
    bits("pad", 1, 1, 5, 4),
    bits("version", 1, 1, 3, 0),
    u16("pkey", 2),
    bits("fecn", 4, 4, 31),
    bits("becn", 4, 4, 30),
    bits("dest_qpn", 4, 4, 23, 0),
    bits("ack_request", 8, 4, 31),
    bits("psn", 8, 4, 23, 0),
    source="InfiniBand vol. 1, 9.2",
)

DETH_SIZE: Final = 8
DETH = Struct(
    "DETH",
    DETH_SIZE,
    u32("qkey", 0),
    bits("source_qpn", 4, 4, 23, 0),
    source="InfiniBand vol. 1, 9.3.3",
)
RETH = Struct(
    "RETH", 16, u64("va", 0), u32("rkey", 8), u32("length", 12), source="InfiniBand vol. 1, 9.3.4"
)
AETH = Struct(
    "AETH",
    4,
    bits("syndrome", 0, 4, 31, 24),
    bits("msn", 0, 4, 23, 0),
    source="InfiniBand vol. 1, 9.3.5",
)
XRC_ETH = Struct(
    "XRCETH", 4, bits("srqn", 0, 4, 23, 0, "target SRQ"), source="InfiniBand vol. 1, annex A14"
)
ATOMIC_ETH = Struct(
    "AtomicETH",
    28,
    u64("va", 0),
    u32("rkey", 8),
    u64("swap_or_add", 12),
    u64("compare", 20),
    source="InfiniBand vol. 1, 9.3.6",
)
ATOMIC_ACK_ETH = Struct(
    "AtomicAckETH", 8, u64("original", 0, "what was there"), source="InfiniBand vol. 1, 9.3.7"
)
IMMEDIATE = Struct("ImmDt", 4, u32("value", 0), source="InfiniBand vol. 1, 9.3.8")
IETH = Struct("IETH", 4, u32("rkey", 0, "key to invalidate"), source="InfiniBand vol. 1, 9.3.9")
CNP_REST = Struct("CNP", 16, raw("reserved", 0, 16, "0"), source="InfiniBand annex A17.9.1")
CNP_TRAFFIC_CLASS: Final = 46 << 2
"""DSCP 46, which a ConnectX-3 Pro gives its CNPs; no mark can come upon them."""
CNP_SERVICE_LEVEL: Final = 7
ICRC_SIZE: Final = 4

_CONNECTED: dict[int, tuple[Struct, ...]] = {
    BthOpcode.RC_SEND_FIRST: (),
    BthOpcode.RC_SEND_MIDDLE: (),
    BthOpcode.RC_SEND_LAST: (),
    BthOpcode.RC_SEND_LAST_IMM: (IMMEDIATE,),
    BthOpcode.RC_SEND_ONLY: (),
    BthOpcode.RC_SEND_ONLY_IMM: (IMMEDIATE,),
    BthOpcode.RC_WRITE_FIRST: (RETH,),
    BthOpcode.RC_WRITE_MIDDLE: (),
    BthOpcode.RC_WRITE_LAST: (),
    BthOpcode.RC_WRITE_LAST_IMM: (IMMEDIATE,),
    BthOpcode.RC_WRITE_ONLY: (RETH,),
    BthOpcode.RC_WRITE_ONLY_IMM: (RETH, IMMEDIATE),
    BthOpcode.RC_READ_REQUEST: (RETH,),
    BthOpcode.RC_READ_RESPONSE_FIRST: (AETH,),
    BthOpcode.RC_READ_RESPONSE_MIDDLE: (),
    BthOpcode.RC_READ_RESPONSE_LAST: (AETH,),
    BthOpcode.RC_READ_RESPONSE_ONLY: (AETH,),
    BthOpcode.RC_ACK: (AETH,),
    BthOpcode.RC_ATOMIC_ACK: (AETH, ATOMIC_ACK_ETH),
    BthOpcode.RC_COMPARE_SWAP: (ATOMIC_ETH,),
    BthOpcode.RC_FETCH_ADD: (ATOMIC_ETH,),
    BthOpcode.RC_SEND_LAST_INV: (IETH,),
    BthOpcode.RC_SEND_ONLY_INV: (IETH,),
}
"""The extended headers of the reliable connection's packets, in order (vol. 1, table 38)."""

ANSWERS = frozenset(range(BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_ATOMIC_ACK + 1))
"""Opcodes of what a responder sends; of XRC, such packets name no SRQ."""
_WITHOUT_PAYLOAD = (
    BthOpcode.RC_READ_REQUEST,
    BthOpcode.RC_ACK,
    BthOpcode.RC_ATOMIC_ACK,
    BthOpcode.RC_COMPARE_SWAP,
    BthOpcode.RC_FETCH_ADD,
)

HEADERS: dict[int, tuple[Struct, ...]] = {
    **_CONNECTED,
    **{
        UNRELIABLE_SERVICE + opcode: headers
        for opcode, headers in _CONNECTED.items()
        if opcode <= BthOpcode.RC_WRITE_ONLY_IMM
    },
    **{
        XRC_SERVICE + opcode: headers if opcode in ANSWERS else (XRC_ETH, *headers)
        for opcode, headers in _CONNECTED.items()
    },
    BthOpcode.UD_SEND_ONLY: (DETH,),
    BthOpcode.UD_SEND_ONLY_IMM: (DETH, IMMEDIATE),
    BthOpcode.CNP: (CNP_REST,),
}
"""The extended headers behind the BTH, by opcode, of all packets that there are."""

WITHOUT_PAYLOAD = frozenset(
    (BthOpcode.CNP, *(service + code for service in (0, XRC_SERVICE) for code in _WITHOUT_PAYLOAD))
)
"""Opcodes of packets that end with their headers."""

NO_CREDITS: Final = 0x1F
"""AETH credit code of a responder that does not count credits (9.7.7.2.3)."""

RNR_TIMER_US: tuple[int, ...] = (
    655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
    2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880,
    163840, 245760, 327680, 491520,
)  # fmt: skip
"""RNR NAK timer codes in microseconds (InfiniBand vol. 1, table 45)."""

MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
GSI_QKEY: Final = 0x80010000
DEFAULT_PKEY: Final = 0xFFFF
"""P_Key of a full member of the default partition."""
SMI_QPN: Final = 0
GSI_QPN: Final = 1
NO_GID = bytes(16)
PSN_MASK: Final = 0xFFFFFF
"""Mask of packet sequence numbers, which have 24 bits."""


def packet_name(opcode: int) -> str:
    """Return the operation of a packet, such as WRITE_MIDDLE, whatever its service."""
    if opcode in (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM, BthOpcode.CNP):
        return BthOpcode(opcode).name.removeprefix("UD_")
    return PACKET_NAMES.get(opcode & ~SERVICE_MASK, "")


def ipv4_gid(address: bytes) -> bytes:
    """Return the IPv4-mapped GID of RoCE: ten zeros, two 0xFF, four address bytes."""
    if len(address) != 4:
        raise ValueError(f"{address!r} is not an IPv4 address of 4 bytes")
    return IPV4_MAPPED + address


def ipv4_number(gid: bytes) -> int:
    """Return the IPv4 address of an IPv4-mapped GID as a number, 0 for any other GID."""
    return int.from_bytes(gid[-4:], "big") if gid.startswith(IPV4_MAPPED) else 0


def ip_gid(address: bytes) -> bytes:
    """Return the GID of an IP address of 4 or 16 bytes; that of an IPv6 address is the address."""
    return address if len(address) == 16 else ipv4_gid(address)


def ack_timeout_us(code: int) -> float:
    """Return the local ACK timeout of a code: 4.096 us * 2^code; 0 means no timeout."""
    return 4.096 * (1 << code) if code else 0.0


class Op(IntEnum):
    """Request opcodes of a reliable or unreliable connection."""

    SEND = 0
    SEND_IMM = 1
    SEND_INV = 2
    WRITE = 3
    WRITE_IMM = 4
    READ = 5
    COMPARE_SWAP = 6
    FETCH_ADD = 7
    MASKED_COMPARE_SWAP = 8
    MASKED_FETCH_ADD = 9


ATOMICS = frozenset((Op.COMPARE_SWAP, Op.FETCH_ADD, Op.MASKED_COMPARE_SWAP, Op.MASKED_FETCH_ADD))


class Syndrome(IntEnum):
    """AETH syndromes (InfiniBand vol. 1, 9.7.5.2.1)."""

    ACK = 0x00
    RNR_NAK = 0x20  # low five bits: timer code
    NAK_PSN = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63
    NAK_INVALID_RD = 0x64
