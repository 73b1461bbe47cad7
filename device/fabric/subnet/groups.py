"""Multicast groups with the switch's table of their members, and services that ports announce.

Rules: InfiniBand vol. 1, 15.2.5.17 and 15.2.5.14; what Linux asks for: `ipoib_multicast.c:
ipoib_mcast_join`, `core/cma.c: cma_join_ib_multicast`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.fabric.subnet.records import BEST_LINK, matches, named
from bluebridge.device.layout.ib.link import FIRST_GROUP_LID, LAST_GROUP_LID, MTU_4096, RATE_40_GBPS
from bluebridge.device.layout.ib.sa import MC_MEMBER_RECORD, SERVICE_RECORD, SaStatus

FULL, NON_MEMBER, SEND_ONLY, SEND_ONLY_FULL = 1, 2, 4, 8
RECEIVING = FULL | NON_MEMBER
KEEPING = FULL | SEND_ONLY_FULL
"""Join states of members that keep a group in existence."""

IPOIB_QKEY = 0x0B1B
IPOIB_SIGNATURES = (b"\x40\x1b", b"\x60\x1b")
IPOIB_BROADCAST = bytes.fromhex("ff12401bffff000000000000ffffffff")
SCOPE_LINK = 2
MAX_GROUPS = 1024
_OWN_SIGNATURE = bytes.fromhex("ff12a01bfe80000000000000")
"""Beginning of the MGIDs that are made for groups requested without one."""

_AGREED = frozenset(
    ("qkey", "mlid", "mtu", "mtu_selector", "traffic_class", "pkey", "rate", "rate_selector",
     "service_level", "flow_label", "hop_limit", "life", "life_selector")
)  # fmt: skip
_NEEDED = frozenset(("qkey", "pkey", "service_level", "flow_label", "traffic_class"))
"""Components that a request must have to create a group (o15-0.1.1)."""

MAX_SERVICES = 1024

Key = tuple[int, bytes, int]
"""The service id, GID and P_Key of a service."""


class SaError(Exception):
    """A query of the subnet administrator is answered with a status other than OK."""

    def __init__(self, status: SaStatus) -> None:
        super().__init__(status.name)
        self.status = status


@dataclass(slots=True)
class Group:
    """A multicast group: `members` are join states by port, `record` has its common parameters."""

    record: bytearray
    lasting: bool = False
    members: dict[PortAgent, int] = field(default_factory=dict)

    def member_record(self, port: PortAgent | None) -> bytes:
        """Return the MCMemberRecord of a member, or of the group alone for None."""
        record = bytearray(self.record)
        if port is not None:
            MC_MEMBER_RECORD.set(record, "port_gid", port.gid(0))
            MC_MEMBER_RECORD.set(record, "join_state", self.members.get(port, 0))
        return bytes(record)


class Groups:
    """The multicast groups of a subnet; `masks` is the switch's table: ports by group LID."""

    def __init__(self, masks: dict[int, int]) -> None:
        self._masks = masks
        self._groups: dict[bytes, Group] = {}
        self._made_up = 0
        broadcast = MC_MEMBER_RECORD.pack(
            mgid=IPOIB_BROADCAST, pkey=0xFFFF, scope=SCOPE_LINK, **_defaults(IPOIB_QKEY)
        )
        self._add(broadcast, lasting=True)

    def join(self, port: PortAgent, request: bytes, mask: int) -> bytes:
        """Make `port` a member; returns the record of its membership. Raises `SaError`."""
        get = MC_MEMBER_RECORD.get
        names = named(MC_MEMBER_RECORD, mask)
        state = get(request, "join_state")
        if "join_state" not in names or not state:
            raise SaError(SaStatus.INSUFFICIENT_COMPONENTS)
        mgid = MC_MEMBER_RECORD.get_raw(request, "mgid") if "mgid" in names else bytes(16)
        group = self._groups.get(mgid)
        if group is None:
            if not state & KEEPING:
                raise SaError(SaStatus.INVALID_REQUEST)
            group = self._create(mgid, request, names)
        elif not matches(MC_MEMBER_RECORD, request, group.record, names & _AGREED, frozenset()):
            raise SaError(SaStatus.INVALID_REQUEST)
        group.members[port] = group.members.get(port, 0) | state
        self._program(group)
        return group.member_record(port)

    def leave(self, port: PortAgent, request: bytes) -> bytes:
        """End a membership or some of its kinds; returns the record before. Raises `SaError`."""
        group = self._groups.get(MC_MEMBER_RECORD.get_raw(request, "mgid"))
        state = MC_MEMBER_RECORD.get(request, "join_state")
        if group is None or not group.members.get(port, 0) & state:
            raise SaError(SaStatus.INVALID_REQUEST)
        record = group.member_record(port)
        self._drop(group, port, state)
        return record

    def forget(self, port: PortAgent) -> None:
        """Remove a port that is out of service from all groups."""
        for group in list(self._groups.values()):
            if port in group.members:
                self._drop(group, port, FULL | NON_MEMBER | SEND_ONLY | SEND_ONLY_FULL)

    def records(self, *, members: bool) -> Iterator[bytes]:
        """Yield a record for each group, or for each of its members."""
        for group in self._groups.values():
            if members:
                yield from (group.member_record(port) for port in group.members)
            else:
                yield group.member_record(None)

    def _drop(self, group: Group, port: PortAgent, state: int) -> None:
        left = group.members.pop(port) & ~state
        if left:
            group.members[port] = left
        self._program(group)
        if not group.lasting and not any(each & KEEPING for each in group.members.values()):
            mgid = MC_MEMBER_RECORD.get_raw(group.record, "mgid")
            del self._groups[mgid]
            self._masks.pop(MC_MEMBER_RECORD.get(group.record, "mlid"), None)

    def _create(self, mgid: bytes, request: bytes, names: set[str]) -> Group:
        if len(self._groups) >= MAX_GROUPS:
            raise SaError(SaStatus.NO_RESOURCES)
        ipoib = mgid[2:4] in IPOIB_SIGNATURES
        if not ipoib and not names >= _NEEDED:
            raise SaError(SaStatus.INSUFFICIENT_COMPONENTS)
        if any(mgid) and mgid[0] != 0xFF:
            raise SaError(SaStatus.INVALID_GID)
        values = _defaults(IPOIB_QKEY if ipoib else 0)
        for name in names & (_AGREED - {"mlid", "mtu_selector", "rate_selector", "life_selector"}):
            values[name] = MC_MEMBER_RECORD.get(request, name)
        for name, best in (("mtu", MTU_4096), ("rate", RATE_40_GBPS)):
            values[name] = _settle(request, names, name, best)
        if not any(mgid):
            self._made_up += 1
            mgid = _OWN_SIGNATURE + self._made_up.to_bytes(4, "big")
        pkey = values.pop("pkey", 0xFFFF)
        scope = mgid[1] & 0xF
        return self._add(MC_MEMBER_RECORD.pack(values, mgid=mgid, pkey=pkey, scope=scope))

    def _add(self, record: bytearray, *, lasting: bool = False) -> Group:
        used = {MC_MEMBER_RECORD.get(group.record, "mlid") for group in self._groups.values()}
        free = (lid for lid in range(FIRST_GROUP_LID, LAST_GROUP_LID) if lid not in used)
        MC_MEMBER_RECORD.set(record, "mlid", next(free))
        group = Group(record, lasting)
        self._groups[MC_MEMBER_RECORD.get_raw(record, "mgid")] = group
        return group

    def _program(self, group: Group) -> None:
        """Write the ports of the members that receive into the switch's table."""
        mask = 0
        for port, state in group.members.items():
            if state & RECEIVING and port.peer is not None:
                mask |= 1 << port.peer.number
        self._masks[MC_MEMBER_RECORD.get(group.record, "mlid")] = mask


def _defaults(qkey: int) -> dict[str, int]:
    return {**BEST_LINK, "qkey": qkey, "mtu": MTU_4096}


def _settle(request: bytes, names: set[str], name: str, best: int) -> int:
    """Return MTU or rate of a new group: the one asked for, one less, or the best."""
    if name not in names:
        return best
    wanted = MC_MEMBER_RECORD.get(request, name)
    how = MC_MEMBER_RECORD.get(request, f"{name}_selector") if f"{name}_selector" in names else 2
    value = {0: best, 1: wanted - 1, 2: wanted, 3: best}[how]
    if not 0 < value <= best or (how == 0 and best <= wanted):
        raise SaError(SaStatus.INVALID_REQUEST)
    return value


class Services:
    """The service records, each with the port that registered it, until that port leaves."""

    def __init__(self) -> None:
        self._records: dict[Key, tuple[PortAgent, bytes]] = {}

    def register(self, port: PortAgent, record: bytes) -> bool:
        """Add or replace a record; returns False when there is no room."""
        key = _key(record)
        if key not in self._records and len(self._records) >= MAX_SERVICES:
            return False
        self._records[key] = (port, record)
        return True

    def withdraw(self, record: bytes) -> bytes | None:
        """Remove a record and return it, None without one."""
        _, found = self._records.pop(_key(record), (None, None))
        return found

    def forget(self, port: PortAgent) -> None:
        """Remove the records of a port that is out of service."""
        self._records = {key: item for key, item in self._records.items() if item[0] is not port}

    def records(self) -> list[bytes]:
        """Return all service records."""
        return [record for _, record in self._records.values()]


def _key(record: bytes) -> Key:
    get = SERVICE_RECORD.get
    return (get(record, "service_id"), SERVICE_RECORD.get_raw(record, "gid"), get(record, "pkey"))
