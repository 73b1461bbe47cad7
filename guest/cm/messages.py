"""CM messages as MADs of 256 bytes, filled as the kernel's rdma_cm fills them.

They are built and read with the tables of device.layout.net.cm.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bluebridge.device.layout.fields import Struct, Value
from bluebridge.device.layout.ib.mad import DATA_OFFSET, MAD, MAD_SIZE, Method, MgmtClass
from bluebridge.device.layout.net.cm import (
    CM_CLASS_VERSION,
    IP_HEADER,
    IP_HEADER_SIZE,
    MESSAGES,
    CmAttribute,
    service_id,
)
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.guest.cm.interface import ConnParam, LocalPort, Peer
from bluebridge.guest.verbs import AccessFlags, AddressVector, QpAttr, QpState

CM_RESPONSE_TIMEOUT = 20  # 4.3 s, core/cma.c: CMA_CM_RESPONSE_TIMEOUT
CM_MAX_RETRIES = 15  # core/cma.c: CMA_MAX_CM_RETRIES
MAX_RETRY_COUNT = 7
DEFAULT_PKEY = 0xFFFF
MTU_1024 = 3
"""The path MTU code of RoCE over an Ethernet MTU of 1500."""
ACK_TIMEOUT_CODE = 18
"""The ACK timeout code: 4.096 us * 2^18 = 1.07 s.

The kernel's 16 or 17 is short for a peer emulated by software.
"""
HOP_LIMIT = 64
MIN_RNR_TIMER = 12
"""The code of the shortest RNR delay, 0.64 ms, as user programs choose; core/cm.c sets 655 ms."""
REMOTE_ACCESS = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)

_ADDRESSES = {4: (4, ipaddress.IPv4Address), 6: (16, ipaddress.IPv6Address)}
"""The bytes of an address and its class, by the version of IP."""


class MalformedMessage(ValueError):
    """A MAD is no CM message; it is dropped, as the kernel does."""


@dataclass(frozen=True, slots=True)
class Message:
    """One CM message: its kind, its transaction and its fields by name."""

    kind: CmAttribute
    tid: int
    fields: Mapping[str, Value]

    def __getitem__(self, name: str) -> int:
        value = self.fields[name]
        if not isinstance(value, int):
            raise KeyError(f"{self.kind.name}.{name} is no number")
        return value

    def raw(self, name: str) -> bytes:
        """Return a field that is kept as bytes (GIDs, private data)."""
        value = self.fields[name]
        if isinstance(value, int):
            raise KeyError(f"{self.kind.name}.{name} is no byte string")
        return bytes(value)


def encode(kind: CmAttribute, tid: int, fields: Mapping[str, Value]) -> bytes:
    """Return a whole MAD; `private_data` shorter than its place is padded with zeros.

    Raises `ValueError` for a field that does not fit or private data that is too long.
    """
    table = MESSAGES[kind]
    values = dict(fields)
    values["private_data"] = _padded(table, values.get("private_data", b""))
    header = MAD.pack(
        base_version=1,
        mgmt_class=MgmtClass.CM,
        class_version=CM_CLASS_VERSION,
        method=Method.SEND,
        tid=tid,
        attr_id=kind,
    )
    return bytes(header + table.pack(values))


def decode(mad: bytes) -> Message:
    """Read a MAD; raises `MalformedMessage` when it is not a CM message of version 2."""
    if len(mad) != MAD_SIZE:
        raise MalformedMessage(f"a MAD of {len(mad)} bytes")
    names = ("mgmt_class", "class_version", "method", "attr_id")
    mgmt_class, version, method, attribute = (MAD.get(mad, name) for name in names)
    if mgmt_class != MgmtClass.CM or version != CM_CLASS_VERSION:
        raise MalformedMessage(f"class {mgmt_class} version {version} is not CM version 2")
    if method != Method.SEND:
        raise MalformedMessage(f"method {method} in the CM class")
    try:
        kind = CmAttribute(attribute)
    except ValueError as error:
        raise MalformedMessage(f"CM attribute {attribute}") from error
    return Message(kind, MAD.get(mad, "tid"), MESSAGES[kind].unpack(mad, DATA_OFFSET))


def ip_header(source: str, port: int, destination: str) -> bytes:
    """Return the RDMA IP CM service header for two IP addresses and the requester's port."""
    own = ipaddress.ip_address(source)
    return bytes(
        IP_HEADER.pack(
            cma_version=0,
            ip_version=own.version,
            port=port,
            source=own.packed.rjust(16, b"\0"),
            destination=ipaddress.ip_address(destination).packed.rjust(16, b"\0"),
        )
    )


class IpHeader(NamedTuple):
    """The addresses of a REQ: source and destination as text, requester's port."""

    source: str
    port: int
    destination: str


def parse_ip_header(private_data: bytes) -> IpHeader:
    """Read the header from a REQ's private data; `MalformedMessage` when it is not for IP."""
    version, ip = (IP_HEADER.get(private_data, name) for name in ("cma_version", "ip_version"))
    if version != 0 or ip not in _ADDRESSES:
        raise MalformedMessage(f"IP service header of version {version} for IPv{ip}")
    length, address = _ADDRESSES[ip]
    source = IP_HEADER.get_raw(private_data, "source")[-length:]
    destination = IP_HEADER.get_raw(private_data, "destination")[-length:]
    return IpHeader(
        str(address(source)), IP_HEADER.get(private_data, "port"), str(address(destination))
    )


def _padded(table: Struct, data: Value) -> bytes:
    room = table.field("private_data").width
    if not isinstance(data, bytes) or len(data) > room:
        raise ValueError(f"{table.name} carries at most {room} bytes of private data")
    return data.ljust(room, b"\0")


# -- fields and attributes of queue pairs ---------------------------------------------------------


def request_fields(
    local: LocalPort,
    own_port: int,
    address: str,
    port: int,
    peer: Peer,
    qpn: int,
    psn: int,
    param: ConnParam,
) -> dict[str, Value]:
    """Return the fields of a REQ as core/cma.c: cma_connect_ib and core/cm.c: cm_format_req.

    `own_port`, `qpn` and `psn` are this side's, `address` and `port` those of `peer`.
    """
    header = ip_header(local.ip, own_port, address)
    return {
        "service_id": service_id(port),
        "local_ca_guid": local.guid,
        "local_qpn": qpn,
        "responder_resources": param.responder_resources,
        "initiator_depth": param.initiator_depth,
        "remote_cm_timeout": CM_RESPONSE_TIMEOUT,
        "local_cm_timeout": CM_RESPONSE_TIMEOUT,
        "flow_control": param.flow_control,
        "starting_psn": psn,
        "retry_count": min(param.retry_count, MAX_RETRY_COUNT),
        "rnr_retry_count": param.rnr_retry_count,
        "pkey": DEFAULT_PKEY,
        "path_mtu": MTU_1024,
        "max_cm_retries": CM_MAX_RETRIES,
        "primary_local_gid": local.gid,
        "primary_remote_gid": peer.gid,
        "primary_traffic_class": peer.traffic_class,
        "primary_hop_limit": HOP_LIMIT,
        "primary_ack_timeout": ACK_TIMEOUT_CODE,
        "private_data": header + param.private_data,
    }


def reply_fields(guid: int, qpn: int, psn: int, param: ConnParam) -> dict[str, Value]:
    """Return the fields of a REP as core/cma.c: cma_accept_ib and core/cm.c: cm_format_rep."""
    return {
        "local_qpn": qpn,
        "starting_psn": psn,
        "responder_resources": param.responder_resources,
        "initiator_depth": param.initiator_depth,
        "flow_control": param.flow_control,
        "rnr_retry_count": param.rnr_retry_count,
        "local_ca_guid": guid,
        "private_data": param.private_data,
    }


def request_param(request: Message) -> ConnParam:
    """Return the parameters that a REQ asks for, its private data without the addresses."""
    return ConnParam(
        request.raw("private_data")[IP_HEADER_SIZE:],
        request["initiator_depth"],
        request["responder_resources"],
        request["flow_control"],
        request["retry_count"],
        request["rnr_retry_count"],
    )


def rtr_of(message: Message, param: ConnParam, psn: int, to: AddressVector, mtu: int) -> QpAttr:
    """Return the attributes for RTR out of a REQ or REP; `psn` is the first that this side expects.

    Each side names the PSN it expects first, which the other one then starts with
    (core/cm.c: ib_send_cm_req and ib_send_cm_rep keep theirs as rq_psn, cm_req_handler and
    cm_rep_handler the peer's as sq_psn).
    """
    return QpAttr(
        state=QpState.RTR,
        access=REMOTE_ACCESS,
        address_vector=to,
        path_mtu=MTU_BYTES[mtu],
        dest_qpn=message["local_qpn"],
        rq_psn=psn,
        max_dest_rd_atomic=min(param.responder_resources, message["initiator_depth"]),
        min_rnr_timer=MIN_RNR_TIMER,
    )


def rts_of(message: Message, param: ConnParam) -> QpAttr:
    """Return the attributes for RTS out of a REQ, on the passive side, or a REP."""
    asked = message.kind is CmAttribute.REQ
    return QpAttr(
        state=QpState.RTS,
        sq_psn=message["starting_psn"],
        timeout=message["primary_ack_timeout"] if asked else ACK_TIMEOUT_CODE,
        retry_count=message["retry_count"] if asked else min(param.retry_count, MAX_RETRY_COUNT),
        rnr_retry=message["rnr_retry_count"],
        max_rd_atomic=min(param.initiator_depth, message["responder_resources"]),
    )
