"""Subnet administration: its MAD with the RMPP header, and its records.

The fields of a record are in the order of its component mask: bit n of the mask is field n.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64
from bluebridge.device.layout.ib.mad import NODE_INFO

SA_CLASS_VERSION = 2
SA_HEADER_SIZE = 56
SA_DATA_SIZE = 200
RMPP_OVERHEAD = 20
"""Bytes of the SA's header, which RMPP counts as payload of a segment."""

SA_MAD = Struct(
    "SA_MAD",
    SA_HEADER_SIZE,
    u8("base_version", 0, "1"),
    u8("mgmt_class", 1, "0x03"),
    u8("class_version", 2, "2"),
    u8("method", 3),
    u16("status", 4),
    u64("tid", 8),
    u16("attr_id", 16),
    u32("attr_mod", 20),
    u8("rmpp_version", 24, "1"),
    u8("rmpp_type", 25, "RmppType"),
    bits("rmpp_response_time", 26, 1, 7, 3),
    bits("rmpp_flags", 26, 1, 2, 0, "RmppFlag"),
    u8("rmpp_status", 27),
    u32("segment", 28, "number of this segment, from 1; of an ACK the last one that came"),
    u32("length_or_window", 32, "payload of first and last segment; of an ACK the window's end"),
    u64("sm_key", 36),
    u16("attr_offset", 44, "size of a record in 8-byte words"),
    u64("component_mask", 48, "which fields of the record count"),
    source="InfiniBand vol. 1, 13.6.2 and 15.2.1; include/rdma/ib_mad.h: struct ib_sa_mad",
)


class RmppType(IntEnum):
    """Types of RMPP segments."""

    NONE = 0
    DATA = 1
    ACK = 2
    STOP = 3
    ABORT = 4


class RmppFlag(IntFlag):
    """Flags of an RMPP segment."""

    ACTIVE = 1
    FIRST = 2
    LAST = 4


class SaMethod(IntEnum):
    """Methods of the SA besides Get, Set and GetResp."""

    REPORT = 0x06
    GET_TABLE = 0x12
    GET_TABLE_RESP = 0x92
    DELETE = 0x15
    DELETE_RESP = 0x95


class SaStatus(IntEnum):
    """Status values of a subnet administration response (15.2.5)."""

    OK = 0x0000
    BAD_METHOD = 0x000C
    NO_RESOURCES = 0x0100
    INVALID_REQUEST = 0x0200
    NO_RECORDS = 0x0300
    TOO_MANY_RECORDS = 0x0400
    INVALID_GID = 0x0500
    INSUFFICIENT_COMPONENTS = 0x0600


class SaAttribute(IntEnum):
    """Attributes of subnet administration."""

    CLASS_PORT_INFO = 0x01
    INFORM_INFO = 0x03
    NODE = 0x11
    PORT_INFO = 0x12
    SWITCH_INFO = 0x14
    LINEAR_FORWARDING = 0x15
    SM_INFO = 0x18
    LINK = 0x20
    GUID_INFO = 0x30
    SERVICE = 0x31
    PKEY_TABLE = 0x33
    PATH = 0x35
    MC_MEMBER = 0x38
    INFORM_INFO_RECORD = 0xF3


CAP2_SENDONLY_FULL_MEMBER = 1 << 1
"""Bit of CapabilityMask2: a group can be joined as send-only full member."""

_SOURCE = "InfiniBand vol. 1, 15.2.5; include/rdma/ib_sa.h"

PATH_RECORD = Struct(
    "PathRecord",
    64,
    bits("service_high", 0, 4, 31, 0),
    bits("service_low", 4, 4, 31, 0),
    raw("dgid", 8, 16),
    raw("sgid", 24, 16),
    u16("dlid", 40),
    u16("slid", 42),
    bits("raw_traffic", 44, 4, 31),
    bits("reserved", 44, 4, 30, 28),
    bits("flow_label", 44, 4, 27, 8),
    bits("hop_limit", 44, 4, 7, 0),
    u8("traffic_class", 48),
    bits("reversible", 49, 1, 7),
    bits("paths", 49, 1, 6, 0, "how many the asker wants"),
    u16("pkey", 50),
    bits("qos_class", 52, 2, 15, 4),
    bits("service_level", 52, 2, 3, 0),
    bits("mtu_selector", 54, 1, 7, 6, "0 more than, 1 less than, 2 exactly, 3 largest"),
    bits("mtu", 54, 1, 5, 0, "5 = 4096"),
    bits("rate_selector", 55, 1, 7, 6),
    bits("rate", 55, 1, 5, 0, "7 = 40 Gb/s"),
    bits("life_selector", 56, 1, 7, 6),
    bits("life", 56, 1, 5, 0, "4.096 us * 2^n"),
    u8("preference", 57),
    source=_SOURCE,
)

MC_MEMBER_SIZE = 52
MC_MEMBER_RECORD = Struct(
    "MCMemberRecord",
    MC_MEMBER_SIZE,
    raw("mgid", 0, 16),
    raw("port_gid", 16, 16),
    u32("qkey", 32),
    u16("mlid", 36),
    bits("mtu_selector", 38, 1, 7, 6),
    bits("mtu", 38, 1, 5, 0),
    u8("traffic_class", 39),
    u16("pkey", 40),
    bits("rate_selector", 42, 1, 7, 6),
    bits("rate", 42, 1, 5, 0),
    bits("life_selector", 43, 1, 7, 6),
    bits("life", 43, 1, 5, 0),
    bits("service_level", 44, 4, 31, 28),
    bits("flow_label", 44, 4, 27, 8),
    bits("hop_limit", 44, 4, 7, 0),
    bits("scope", 48, 1, 7, 4),
    bits("join_state", 48, 1, 3, 0, "1 full, 2 non-member, 4 send-only, 8 send-only full"),
    bits("proxy_join", 49, 1, 7),
    source=_SOURCE,
)

NODE_RECORD_SIZE = 108
_NODE_INFO = [replace(item, offset=item.offset + 4) for item in NODE_INFO]
NODE_RECORD = Struct(
    "NodeRecord",
    NODE_RECORD_SIZE,
    u16("lid", 0),
    u16("reserved", 2),
    *_NODE_INFO,
    raw("description", 44, 64),
    source=_SOURCE,
)

PORT_INFO_RECORD = Struct(
    "PortInfoRecord",
    68,
    u16("lid", 0),
    u8("port", 2),
    u8("options", 3),
    u64("mkey", 4),
    u64("gid_prefix", 12),
    u16("base_lid", 20),
    u16("sm_lid", 22),
    u32("capabilities", 24),
    u16("diagnostic_code", 28),
    u16("mkey_lease", 30),
    u8("local_port", 32),
    u8("width_enabled", 33),
    u8("width_supported", 34),
    u8("width_active", 35),
    bits("speed_supported", 36, 1, 7, 4),
    bits("state", 36, 1, 3, 0),
    bits("physical_state", 37, 1, 7, 4),
    bits("link_down_default", 37, 1, 3, 0),
    bits("mkey_protect", 38, 1, 7, 6),
    bits("reserved", 38, 1, 5, 3),
    bits("lmc", 38, 1, 2, 0),
    bits("speed_active", 39, 1, 7, 4),
    bits("speed_enabled", 39, 1, 3, 0),
    bits("neighbour_mtu", 40, 1, 7, 4),
    bits("sm_sl", 40, 1, 3, 0),
    bits("vl_cap", 41, 1, 7, 4),
    source=_SOURCE,
)

SWITCH_INFO_RECORD = Struct(
    "SwitchInfoRecord",
    24,
    u16("lid", 0),
    u16("reserved", 2),
    raw("info", 4, 20, "SwitchInfo"),
    source=_SOURCE,
)

FORWARDING_RECORD = Struct(
    "LinearForwardingTableRecord",
    72,
    u16("lid", 0),
    u16("block", 2),
    u32("reserved", 4),
    raw("ports", 8, 64),
    source=_SOURCE,
)

SM_INFO_RECORD = Struct(
    "SMInfoRecord",
    28,
    u16("lid", 0),
    u16("reserved", 2),
    raw("info", 4, 24, "SMInfo"),
    source=_SOURCE,
)

LINK_RECORD = Struct(
    "LinkRecord",
    8,
    u16("from_lid", 0),
    u8("from_port", 2),
    u8("to_port", 3),
    u16("to_lid", 4),
    source=_SOURCE,
)

GUID_INFO_RECORD = Struct(
    "GUIDInfoRecord",
    72,
    u16("lid", 0),
    u8("block", 2),
    u8("reserved", 3),
    u32("reserved2", 4),
    raw("guids", 8, 64),
    source=_SOURCE,
)

PKEY_TABLE_RECORD = Struct(
    "PKeyTableRecord",
    72,
    u16("lid", 0),
    u16("block", 2),
    u8("port", 4),
    raw("reserved", 5, 3),
    raw("pkeys", 8, 64),
    source=_SOURCE,
)

SERVICE_RECORD_SIZE = 176
SERVICE_RECORD = Struct(
    "ServiceRecord",
    SERVICE_RECORD_SIZE,
    u64("service_id", 0),
    raw("gid", 8, 16),
    u16("pkey", 24),
    u16("reserved", 26),
    u32("lease", 28, "seconds; all ones for ever"),
    raw("key", 32, 16),
    raw("name", 48, 64),
    raw("data", 112, 64),
    source=_SOURCE,
)

INFORM_INFO_SIZE = 36
INFORM_INFO = Struct(
    "InformInfo",
    INFORM_INFO_SIZE,
    raw("gid", 0, 16),
    u16("first_lid", 16),
    u16("last_lid", 18),
    u16("reserved", 20),
    u8("generic", 22),
    u8("subscribe", 23, "1 subscribe, 0 end"),
    u16("type", 24),
    u16("trap", 26, "0xFFFF = all"),
    bits("qpn", 28, 4, 31, 8, "where reports go"),
    bits("response_time", 28, 4, 4, 0),
    source=_SOURCE,
)
