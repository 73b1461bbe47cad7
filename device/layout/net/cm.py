"""Communication management messages, and the IP addressing header of rdma_cm in private data.

All offsets count from the end of the 24-byte MAD header (`device.layout.ib.mad.MAD`); every
message fills the remaining 232 bytes of a MAD.
"""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Field, Struct, bits, raw, u8, u16, u32, u64

CM_CLASS_VERSION = 2
CM_DATA_SIZE = 232
SOURCE = "InfiniBand vol. 1, chapter 12; include/rdma/ibta_vol1_c12.h"


class CmAttribute(IntEnum):
    """Attribute ids of the CM class, each of which names the message that a MAD carries."""

    REQ = 0x10
    MRA = 0x11
    REJ = 0x12
    REP = 0x13
    RTU = 0x14
    DREQ = 0x15
    DREP = 0x16


class RejectReason(IntEnum):
    """Reasons of a REJ (InfiniBand vol. 1, 12.6.7.2)."""

    NO_QP = 1
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_TYPE = 9
    STALE_CONNECTION = 10
    INVALID_GID = 12
    INVALID_MTU = 26
    INSUFFICIENT_RESPONDER_RESOURCES = 27
    CONSUMER_DEFINED = 28
    INVALID_RNR_RETRY = 29
    DUPLICATE_LOCAL_COMM_ID = 30
    INVALID_CLASS_VERSION = 31


class Answered(IntEnum):
    """Values that name the message which an MRA or REJ answers."""

    REQ = 0
    REP = 1
    OTHER = 2


_IDS = [u32("local_comm_id", 0, "sender's"), u32("remote_comm_id", 4, "receiver's")]

IP_HEADER_SIZE = 36
IP_HEADER = Struct(
    "CMA_HDR",
    IP_HEADER_SIZE,
    u8("cma_version", 0, "0"),
    bits("ip_version", 1, 1, 7, 4, "4 or 6"),
    u16("port", 2, "requester's port"),
    raw("source", 4, 16, "requester's address; IPv4 in the last four bytes"),
    raw("destination", 20, 16, "listener's address; IPv4 in the last four bytes"),
    doc="RDMA IP CM service header, first in a REQ's private data",
    source="InfiniBand annex A11; core/cma.c: struct cma_hdr",
)

SERVICE_ID_TCP = 0x0000000001060000
"""Base of the service ids of RDMA_PS_TCP; the low 16 bits are the port."""
SERVICE_PORT_MASK = 0xFFFF


def _path(prefix: str, base: int) -> list[Field]:
    """Return the fields of the 44 bytes that describe one path of a REQ."""
    return [
        u16(f"{prefix}_local_lid", base, "0 on RoCE"),
        u16(f"{prefix}_remote_lid", base + 2, "0 on RoCE"),
        raw(f"{prefix}_local_gid", base + 4, 16, "requester's port"),
        raw(f"{prefix}_remote_gid", base + 20, 16, "listener's port"),
        bits(f"{prefix}_flow_label", base + 36, 4, 31, 12),
        bits(f"{prefix}_packet_rate", base + 36, 4, 5, 0, "static rate code"),
        u8(f"{prefix}_traffic_class", base + 40),
        u8(f"{prefix}_hop_limit", base + 41),
        bits(f"{prefix}_sl", base + 42, 1, 7, 4),
        bits(f"{prefix}_subnet_local", base + 42, 1, 3),
        bits(f"{prefix}_ack_timeout", base + 43, 1, 7, 3, "4.096 us * 2^n"),
    ]


def _message(name: str, table: int, *fields: Field) -> Struct:
    return Struct(f"CM_{name}", CM_DATA_SIZE, *fields, source=f"{SOURCE}, table {table}")


REQ = _message(
    "REQ",
    106,
    u32("local_comm_id", 0, "requester's"),
    u64("service_id", 8),
    u64("local_ca_guid", 16),
    u32("local_qkey", 28),
    bits("local_qpn", 32, 4, 31, 8),
    u8("responder_resources", 35, "reads and atomics the requester takes at once"),
    u8("initiator_depth", 39, "reads and atomics the requester sends at once"),
    bits("remote_eecn", 40, 4, 31, 8),
    bits("remote_cm_timeout", 43, 1, 7, 3, "4.096 us * 2^n for the listener to answer"),
    bits("transport", 43, 1, 2, 1, "0 RC, 1 UC"),
    bits("flow_control", 43, 1, 0),
    bits("starting_psn", 44, 4, 31, 8, "the first that the requester expects"),
    bits("local_cm_timeout", 47, 1, 7, 3, "4.096 us * 2^n for the requester to answer"),
    bits("retry_count", 47, 1, 2, 0),
    u16("pkey", 48),
    bits("path_mtu", 50, 1, 7, 4, "3 = 1024"),
    bits("rdc_exists", 50, 1, 3),
    bits("rnr_retry_count", 50, 1, 2, 0),
    bits("max_cm_retries", 51, 1, 7, 4),
    bits("srq", 51, 1, 3),
    bits("extended_transport", 51, 1, 2, 0),
    *_path("primary", 52),
    *_path("alternate", 96),
    raw("private_data", 140, 92, "the IP addressing header, then 56 bytes of the consumer's"),
)

MRA = _message(
    "MRA",
    107,
    *_IDS,
    bits("answered", 8, 1, 7, 6, "Answered"),
    bits("service_timeout", 9, 1, 7, 3, "4.096 us * 2^n until the answer comes"),
    raw("private_data", 10, 222),
)

REJ = _message(
    "REJ",
    108,
    *_IDS,
    bits("answered", 8, 1, 7, 6, "Answered"),
    bits("info_length", 9, 1, 7, 1),
    u16("reason", 10, "RejectReason"),
    raw("info", 12, 72, "additional information, by reason"),
    raw("private_data", 84, 148),
)

REP = _message(
    "REP",
    110,
    *_IDS,
    u32("local_qkey", 8),
    bits("local_qpn", 12, 4, 31, 8),
    bits("local_eecn", 16, 4, 31, 8),
    bits("starting_psn", 20, 4, 31, 8, "the first that the listener expects"),
    u8("responder_resources", 24),
    u8("initiator_depth", 25),
    bits("target_ack_delay", 26, 1, 7, 3),
    bits("failover_accepted", 26, 1, 2, 1),
    bits("flow_control", 26, 1, 0),
    bits("rnr_retry_count", 27, 1, 7, 5),
    bits("srq", 27, 1, 4),
    u64("local_ca_guid", 28),
    raw("private_data", 36, 196),
)

RTU = _message("RTU", 111, *_IDS, raw("private_data", 8, 224))

DREQ = _message(
    "DREQ",
    112,
    *_IDS,
    bits("remote_qpn", 8, 4, 31, 8, "the receiver's queue pair"),
    raw("private_data", 12, 220),
)

DREP = _message("DREP", 113, *_IDS, raw("private_data", 8, 224))

MESSAGES = dict(zip(CmAttribute, (REQ, MRA, REJ, REP, RTU, DREQ, DREP), strict=True))
"""The structure of each message by attribute id."""


def service_id(port: int) -> int:
    """Return the service id on which rdma_cm listens for TCP-like `port`.

    Raises `ValueError` for a port that is not in 0..65535.
    """
    if not 0 <= port <= SERVICE_PORT_MASK:
        raise ValueError(f"port {port} is not in 0..65535")
    return SERVICE_ID_TCP | port


def cm_timeout_seconds(code: int) -> float:
    """Convert the code of a CM response or service timeout to seconds."""
    return 4.096e-6 * float(1 << code)
