"""Multicast groups: records the driver keeps in the device (Linux `mlx4/mcg.c`)."""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from bluebridge.device.ethernet.rules.table import Member
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.ports import MCG, MCG_BLOCK_LOOPBACK, MCG_QPN_OFFSET
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.ports.groups import Groups

MAX_CACHED: Final = 1024
"""Groups whose members are kept until a record changes."""


PROTOCOL_ETHERNET: Final = 1


class SteerType(IntEnum):
    """Kinds of records (inc/mlx4.h: mlx4_steer_type)."""

    MULTICAST = 0
    UNICAST = 1


def group_of(mac: bytes, port: int, steer: SteerType) -> bytes:
    """The "GID" under which drivers file an Ethernet address in the multicast table."""
    return bytes((0, 0, 0, 0, 0, port, 0, steer << 1, 0, 0)) + mac


class MulticastGroups(Groups):
    """Records by index: hash buckets first, then the chained ones the driver allocates."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._records: dict[int, bytes] = {}
        self._defaults: dict[tuple[int, int], list[int]] = {}
        self._cached: dict[tuple[bytes, int], list[Member]] = {}

    def reset(self) -> None:
        """No groups."""
        self._records.clear()
        self._defaults.clear()
        self._cached.clear()

    @property
    def record_bytes(self) -> int:
        """Size of a record, as INIT_HCA said."""
        return 1 << self._parameters.log_mc_entry_size

    def hash(self, gid: bytes) -> int:
        """The bucket of a GID: any function does, the driver asks for it."""
        return zlib.crc32(gid) & (1 << self._parameters.log_mc_hash) - 1

    def read(self, index: int) -> bytes:
        """A record; zeros when it was never written."""
        self._check(index)
        return self._records.get(index, bytes(self.record_bytes))

    def write(self, index: int, record: bytes) -> None:
        """Store a record."""
        self._check(index)
        self._records[index] = record
        self._cached.clear()

    def write_default(self, port: int, steer: int, record: bytes) -> None:
        """Store the record of those that want all frames of a kind, whatever their address."""
        count = MCG.get(record, "members")
        self._defaults[port, steer] = [qpn for qpn, _ in _members_of(record, count)]

    def frame_default(self, port: int, address: bytes) -> list[int]:
        """Return who wants all frames to groups, or all others, as the address is."""
        return self._defaults.get((port, _steer_of(address)), [])

    def frame_members(self, port: int, address: bytes) -> list[Member]:
        """Return who gets a copy of a frame to this MAC address."""
        return self._members(group_of(address, port, _steer_of(address)), PROTOCOL_ETHERNET)

    def members(self, gid: bytes) -> list[Member]:
        """Return who gets a copy of a datagram to the group `gid`."""
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
        """Follow the chain of a GID's bucket; each record of it is visited once."""
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
    """The members of a record, each once: a message costs no more copies than there are queues."""
    words = record[MCG_QPN_OFFSET : MCG_QPN_OFFSET + 4 * count]
    numbers = [int.from_bytes(words[at : at + 4], "big") for at in range(0, len(words) - 3, 4)]
    unique = {number & 0xFFFFFF: bool(number & MCG_BLOCK_LOOPBACK) for number in numbers}
    return list(unique.items())


def _steer_of(address: bytes) -> SteerType:
    return SteerType.MULTICAST if address[0] & 1 else SteerType.UNICAST
