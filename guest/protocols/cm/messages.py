"""CM messages as MADs of 256 bytes, built and read with the tables of device.layout.net.cm."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from bluebridge.device.layout.fields import Struct, Value
from bluebridge.device.layout.net.cm import CM_CLASS_VERSION, IP_HEADER, MESSAGES, CmAttribute
from bluebridge.device.layout.net.mad import DATA_OFFSET, MAD, MAD_SIZE, Method, MgmtClass

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


@dataclass(frozen=True, slots=True)
class IpHeader:
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
    """Return private data filled up to the size that the message has for it."""
    room = table.field("private_data").width
    if not isinstance(data, bytes) or len(data) > room:
        raise ValueError(f"{table.name} carries at most {room} bytes of private data")
    return data.ljust(room, b"\0")
