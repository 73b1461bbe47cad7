"""Multicast groups as records that the driver keeps in the device (Linux `mlx4/mcg.c`)."""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from bluebridge.device.ethernet.rules import Member
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.ports import MCG, MCG_BLOCK_LOOPBACK, MCG_QPN_OFFSET
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.ports.face import Groups

MAX_CACHED: Final = 1024
"""Most groups whose members are remembered until a record changes."""


PROTOCOL_ETHERNET: Final = 1


class SteerType(IntEnum):
    """Kinds of records (inc/mlx4.h: mlx4_steer_type)."""

    MULTICAST = 0
    UNICAST = 1


def group_of(mac: bytes, port: int, steer: SteerType) -> bytes:
    """Return the "GID" under which drivers file an Ethernet address in the multicast table."""
    return bytes((0, 0, 0, 0, 0, port, 0, steer << 1, 0, 0)) + mac


class MulticastGroups(Groups):
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
        return zlib.crc32(gid) & (1 << self._parameters.log_mc_hash) - 1

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
        return self._defaults.get((port, _steer_of(address)), [])

    def frame_members(self, port: int, address: bytes) -> list[Member]:
        """Return the members that get a copy of a frame to this MAC address."""
        return self._members(group_of(address, port, _steer_of(address)), PROTOCOL_ETHERNET)

    def members(self, gid: bytes) -> list[Member]:
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
