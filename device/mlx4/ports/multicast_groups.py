"""Whom drivers send to: groups as records in the device (Linux `mlx4/mcg.c`), paths in contexts."""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

from bluebridge.device.frames.rules import Member
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import QPC, ROCE_MODE_V2
from bluebridge.device.layout.mlx4.ports import MCG, MCG_BLOCK_LOOPBACK, MCG_QPN_OFFSET
from bluebridge.device.layout.mlx4.wqe import AV
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.mlx4.ports.port_tables import CardPath
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters

MAX_CACHED: Final = 1024
"""Most groups whose members are remembered until a record changes."""


PROTOCOL_ETHERNET: Final = 1

GRH_FLAG: Final = 0x80  # of the byte with the source address
PATH_BITS: Final = 0x7F
_VECTOR: Final = Struct(">32sH6s")
"""Layout of an address vector, and the VLAN tag and MAC address behind it in an entry."""


class SteerType(IntEnum):
    """Kinds of records (inc/mlx4.h: mlx4_steer_type)."""

    MULTICAST = 0
    UNICAST = 1


def group_of(mac: bytes, port: int, steer: SteerType) -> bytes:
    """Return the "GID" under which drivers file an Ethernet address in the multicast table."""
    return bytes((0, 0, 0, 0, 0, port, 0, steer << 1, 0, 0)) + mac


class MulticastGroups:
    """The group records by index: hash buckets first, then the ones the driver chains to them."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._records: dict[int, bytes] = {}
        self._defaults: dict[tuple[int, int], list[int]] = {}
        self._cached: dict[tuple[bytes, int], list[Member]] = {}

    def reset(self) -> None:
        """Remove all groups."""
        self._records.clear()
        self._defaults.clear()
        self._cached.clear()

    @property
    def record_bytes(self) -> int:
        """The size of a record in bytes, as set by INIT_HCA."""
        return 1 << self._parameters.log_mc_entry_size

    def hash(self, gid: bytes) -> int:
        """Return the bucket of a GID; any function will do, as the driver asks for it."""
        return zlib.crc32(gid) & ((1 << self._parameters.log_mc_hash) - 1)

    def read(self, index: int) -> bytes:
        """Return a record; zeros when it was never written."""
        self._check(index)
        return self._records.get(index, bytes(self.record_bytes))

    def write(self, index: int, record: bytes) -> None:
        """Store a record."""
        self._check(index)
        self._records[index] = record
        self._cached.clear()

    def write_default(self, port: int, steer: int, record: bytes) -> None:
        """Store the record of members that want all frames of a kind, to whatever address."""
        count = MCG.get(record, "members")
        self._defaults[port, steer] = [qpn for qpn, _ in _members_of(record, count)]

    def frame_default(self, port: int, address: bytes) -> list[int]:
        """Return the QP numbers that want all frames to multicast or to unicast addresses."""
        return self._defaults.get((port, _steer_of(address)), [])

    def frame_members(self, port: int, address: bytes) -> list[Member]:
        """Return the members that get a copy of a frame to this MAC address."""
        return self._members(group_of(address, port, _steer_of(address)), PROTOCOL_ETHERNET)

    def members(self, gid: bytes) -> list[Member]:
        """Return the members that get a copy of a datagram to the group `gid`."""
        return self._members(gid, 0)

    def _members(self, gid: bytes, protocol: int) -> list[Member]:
        key = (gid, protocol)
        found = self._cached.get(key)
        if found is None:
            if len(self._cached) >= MAX_CACHED:
                self._cached.clear()
            found = self._cached[key] = self._search(gid, protocol)
        return found

    def _search(self, gid: bytes, protocol: int) -> list[Member]:
        """Return a GID's members from the chain of its bucket, each record visited once."""
        index = self.hash(gid)
        seen: set[int] = set()
        while index not in seen and index in self._records:
            seen.add(index)
            record = self._records[index]
            count = MCG.get(record, "members")
            same = MCG.get_raw(record, "gid") == gid and MCG.get(record, "protocol") == protocol
            if same and count:
                return _members_of(record, count)
            index = MCG.get(record, "next_index")
            if not index:
                break
        return []

    def _check(self, index: int) -> None:
        if index >> self._parameters.log_mc_entries:
            raise CommandError(Status.BAD_INDEX, f"multicast record {index:#x}")


def _members_of(record: bytes, count: int) -> list[Member]:
    """Return the members of a record, each once, so that there is one copy per queue at most."""
    words = record[MCG_QPN_OFFSET : MCG_QPN_OFFSET + 4 * count]
    numbers = [int.from_bytes(words[at : at + 4], "big") for at in range(0, len(words) - 3, 4)]
    unique = {number & 0xFFFFFF: bool(number & MCG_BLOCK_LOOPBACK) for number in numbers}
    return list(unique.items())


def _steer_of(address: bytes) -> SteerType:
    return SteerType.MULTICAST if address[0] & 1 else SteerType.UNICAST


def path_of_context(context: bytes | bytearray) -> CardPath:
    """Return the primary path in the context of a queue pair (QPC)."""
    get = QPC.get
    path = CardPath()
    path.source = get(context, "pri_mylmc")
    path.mac = QPC.get_raw(context, "pri_dmac")
    path.lid = get(context, "pri_rlid")
    path.global_route = bool(get(context, "pri_grh"))
    path.gid_index = get(context, "pri_mgid_index")
    path.gid = QPC.get_raw(context, "pri_rgid")
    path.traffic_class = get(context, "pri_tclass")
    path.hop_limit = get(context, "pri_hop_limit")
    path.flow_label = get(context, "pri_flow_label")
    path.service_level = get(context, "pri_sched_queue") >> 2 & 15
    path.priority = get(context, "pri_sched_queue") >> 3 & 7
    if get(context, "pri_vlan_valid"):
        path.vlan_index = get(context, "pri_vlan_index")
    path.roce = 2 if get(context, "roce_mode") == ROCE_MODE_V2 else 1
    return path


def path_of_vector(address: bytes) -> CardPath:
    """Return the path of one UD message: its address vector, the tag and MAC address behind it."""
    av, tag, mac = _VECTOR.unpack(address)
    get = AV.get
    path = CardPath()
    path.source = get(av, "g_slid") & PATH_BITS
    path.mac = mac
    path.lid = get(av, "dlid")
    path.global_route = bool(get(av, "g_slid") & GRH_FLAG)
    path.gid_index = get(av, "gid_index")
    path.gid = AV.get_raw(av, "dgid")
    path.traffic_class = get(av, "tclass")
    path.hop_limit = get(av, "hop_limit")
    path.flow_label = get(av, "flow_label")
    path.service_level = get(av, "sl")
    if _tagged(av) and tag != NO_VLAN:
        path.tag, path.priority = tag, tag >> 13
    return path


def _tagged(av: bytes) -> bool:
    """Return True if the VLAN behind an address vector was set by the writer of the vector.

    The kernel sets it always, to 0xFFFF for none (Linux `ib/ah.c: create_iboe_ah`). libmlx4 sets it
    with a bit of its own only, and leaves what its heap had there else (`verbs.c: mlx4_create_ah`);
    its address vectors have the flag of a GRH, the kernel's on Ethernet do not.
    """
    return bool(AV.get(av, "vlan_present")) or not AV.get(av, "g_slid") & GRH_FLAG
