"""The subnet administrator, which answers queries and keeps groups, services and subscribers.

Who asks: Linux `core/sa_query.c`, `core/multicast.c`, IPoIB, rdma_cm, and the infiniband-diags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.fabric.subnet.groups import Groups, SaError, Services
from bluebridge.device.fabric.subnet.packets import RmppSender, answer_to
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.fabric.subnet.records import TABLES, common_pkey, matches, named, path
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.link import partitions_match
from bluebridge.device.layout.ib.mad import CLASS_PORT_INFO, MAD_SIZE, Method
from bluebridge.device.layout.ib.sa import (
    CAP2_SENDONLY_FULL_MEMBER,
    INFORM_INFO,
    INFORM_INFO_SIZE,
    MC_MEMBER_RECORD,
    PATH_RECORD,
    PORT_INFO_RECORD,
    SA_CLASS_VERSION,
    SA_HEADER_SIZE,
    SA_MAD,
    SERVICE_RECORD,
    RmppFlag,
    RmppType,
    SaAttribute,
    SaMethod,
    SaStatus,
)

RESPONSE_TIME = 18
MATCH_MASK = 1 << 31
"""Bit of the attribute modifier: capabilities match when they include those asked for."""
_PATH_WISHES = frozenset(
    ("service_high", "service_low", "raw_traffic", "reserved", "flow_label", "hop_limit",
     "traffic_class", "reversible", "paths", "qos_class", "preference", "pkey", "dgid", "sgid")
)  # fmt: skip
"""Components of a path query that are not compared with records."""

_RESPONSES: dict[int, int] = {
    Method.GET: Method.GET_RESP,
    Method.SET: Method.GET_RESP,
    SaMethod.DELETE: SaMethod.DELETE_RESP,
    SaMethod.GET_TABLE: SaMethod.GET_TABLE_RESP,
}


class _Query:
    """One request, unpacked once."""

    __slots__ = ("asker", "attribute", "data", "mask", "method", "modifier", "trusted")

    def __init__(self, mad: bytes, asker: PortAgent) -> None:
        get = SA_MAD.get
        self.asker = asker
        self.method = get(mad, "method")
        self.attribute = get(mad, "attr_id")
        self.modifier = get(mad, "attr_mod")
        self.mask = get(mad, "component_mask")
        self.trusted = bool(get(mad, "sm_key"))
        self.data = mad[SA_HEADER_SIZE:]


class Administrator:
    """The subnet administrator: it answers MADs sent to QP1 of the subnet manager's LID."""

    def __init__(self, fabric: InfinibandFabric) -> None:
        self._fabric = fabric
        self._groups = Groups(fabric.switch.node.multicast)
        self._services = Services()
        self._rmpp = RmppSender(self._send)
        self._changes: dict[tuple[int, int], Callable[[_Query], bytes]] = {
            (SaAttribute.MC_MEMBER, Method.SET): self._join,
            (SaAttribute.MC_MEMBER, SaMethod.DELETE): self._leave,
            (SaAttribute.SERVICE, Method.SET): self._register,
            (SaAttribute.SERVICE, SaMethod.DELETE): self._withdraw,
            (SaAttribute.INFORM_INFO, Method.SET): self._subscribe,
            (SaAttribute.CLASS_PORT_INFO, Method.GET): _class_port_info,
        }

    def forget(self, port: PortAgent) -> None:
        """Remove a port that is out of service from all groups, and its services."""
        self._groups.forget(port)
        self._services.forget(port)

    def receive(self, message: Datagram) -> None:
        """Take a MAD of the SA's class; one that comes from no known port is dropped."""
        mad = message.payload
        asker = self._fabric.topology.by_lid(message.route.smac)
        if asker is None or SA_MAD.get(mad, "class_version") != SA_CLASS_VERSION:
            return
        if _is_control(mad):
            self._rmpp.control(message)
            return
        query = _Query(mad, asker)
        if query.method not in _RESPONSES:
            return
        try:
            self._answer(message, query)
        except SaError as error:
            header = self._header(message, query, error.status)
            self._send(message, header + mad[SA_HEADER_SIZE:])

    def _answer(self, message: Datagram, query: _Query) -> None:
        change = self._changes.get((query.attribute, query.method))
        if change is not None:
            data = change(query)
            header = self._header(message, query, SaStatus.OK, len(data))
            self._send(message, (header + data).ljust(MAD_SIZE, b"\0"))
            return
        if query.method not in (Method.GET, SaMethod.GET_TABLE):
            raise SaError(SaStatus.BAD_METHOD)
        table, records = self._table(query)
        size = -(-table.size // 8) * 8
        header = self._header(message, query, SaStatus.OK, size)
        if query.method == SaMethod.GET_TABLE:
            data = b"".join(record.ljust(size, b"\0") for record in records)
            self._rmpp.start(message, header, data)
        elif len(records) == 1 or (records and query.attribute == SaAttribute.PATH):
            self._send(message, (header + records[0]).ljust(MAD_SIZE, b"\0"))
        else:
            raise SaError(SaStatus.TOO_MANY_RECORDS if records else SaStatus.NO_RECORDS)

    # -- tables -------------------------------------------------------------------------------

    def _table(self, query: _Query) -> tuple[Struct, list[bytes]]:
        """Return the layout of the records that a query asks for, and the records."""
        if query.attribute == SaAttribute.PATH:
            return PATH_RECORD, self._paths(query)
        rows: Iterable[bytes]
        if query.attribute == SaAttribute.MC_MEMBER:
            table, rows = MC_MEMBER_RECORD, self._groups.records(members=query.trusted)
        elif query.attribute == SaAttribute.SERVICE:
            table, rows = SERVICE_RECORD, self._services.records()
        elif query.attribute in TABLES:
            table, source = TABLES[query.attribute]
            rows = source(self._fabric)
        else:
            raise SaError(SaStatus.BAD_METHOD)
        names = named(table, query.mask)
        ignore: frozenset[str] = frozenset()
        if query.modifier & MATCH_MASK and table is PORT_INFO_RECORD:
            wanted = table.get(query.data, "capabilities") if "capabilities" in names else 0
            rows = [row for row in rows if not wanted & ~table.get(row, "capabilities")]
            ignore = frozenset(("capabilities",))
        return table, [row for row in rows if matches(table, query.data, row, names, ignore)]

    def _paths(self, query: _Query) -> list[bytes]:
        """Return PathRecords between the sources and the targets that a query may mean."""
        names = named(PATH_RECORD, query.mask)
        found = []
        for source in self._ends(query, names, "sgid"):
            for target in self._ends(query, names, "dgid"):
                pkey = _pkey_between(source, target, query, names)
                if not pkey:
                    continue
                record = bytearray(path(source, target, pkey))
                for name in ("sgid", "dgid"):
                    if name in names:
                        PATH_RECORD.set(record, name, PATH_RECORD.get_raw(query.data, name))
                if matches(PATH_RECORD, query.data, record, names, _PATH_WISHES):
                    found.append(bytes(record))
        wanted = PATH_RECORD.get(query.data, "paths") if "paths" in names else 0
        return found[: wanted or None]

    def _ends(self, query: _Query, names: set[str], name: str) -> list[PortAgent]:
        topology = self._fabric.topology
        if name not in names:
            return [port for _, port in topology.addressed()]
        port = topology.by_gid(PATH_RECORD.get_raw(query.data, name))
        if port is None:
            raise SaError(SaStatus.INVALID_GID)
        return [port]

    # -- changes ------------------------------------------------------------------------------

    def _own(self, query: _Query, table: Struct, name: str) -> PortAgent:
        """Return the port that asks; raises `SaError` if the query is about another one."""
        gid = table.get_raw(query.data, name)
        if not any(query.asker.gid(index) == gid for index in range(len(query.asker.guids))):
            raise SaError(SaStatus.INVALID_GID)
        return query.asker

    def _join(self, query: _Query) -> bytes:
        port = self._own(query, MC_MEMBER_RECORD, "port_gid")
        return self._groups.join(port, query.data, query.mask)

    def _leave(self, query: _Query) -> bytes:
        port = self._own(query, MC_MEMBER_RECORD, "port_gid")
        return self._groups.leave(port, query.data)

    def _register(self, query: _Query) -> bytes:
        port = self._own(query, SERVICE_RECORD, "gid")
        if not self._services.register(port, query.data[: SERVICE_RECORD.size]):
            raise SaError(SaStatus.NO_RESOURCES)
        return query.data[: SERVICE_RECORD.size]

    def _withdraw(self, query: _Query) -> bytes:
        self._own(query, SERVICE_RECORD, "gid")
        record = self._services.withdraw(query.data[: SERVICE_RECORD.size])
        if record is None:
            raise SaError(SaStatus.NO_RECORDS)
        return record

    def _subscribe(self, query: _Query) -> bytes:
        """Accept an InformInfo, and send no reports: events tell of all that could be reported."""
        if INFORM_INFO.get(query.data, "subscribe") > 1:
            raise SaError(SaStatus.INVALID_REQUEST)
        return query.data[:INFORM_INFO_SIZE]

    # -- sending ------------------------------------------------------------------------------

    def _header(self, message: Datagram, query: _Query, status: SaStatus, size: int = 0) -> bytes:
        header = bytearray(message.payload[:SA_HEADER_SIZE])
        for name, value in {
            "method": _RESPONSES[query.method], "status": int(status), "rmpp_version": 0,
            "rmpp_type": 0, "rmpp_flags": 0, "segment": 0, "length_or_window": 0,
            "attr_offset": -(-size // 8),
        }.items():  # fmt: skip
            SA_MAD.set(header, name, value)
        return bytes(header)

    def _send(self, request: Datagram, mad: bytes) -> None:
        self._fabric.switch.send(answer_to(request, mad))


def _is_control(mad: bytes) -> bool:
    """Return True if a MAD is about an answer that is under way (RMPP control)."""
    active = SA_MAD.get(mad, "rmpp_flags") & RmppFlag.ACTIVE
    return bool(active) and SA_MAD.get(mad, "rmpp_type") != RmppType.DATA


def _class_port_info(query: _Query) -> bytes:
    return bytes(CLASS_PORT_INFO.pack(
        base_version=1, class_version=SA_CLASS_VERSION, capabilities2=CAP2_SENDONLY_FULL_MEMBER,
        response_time=RESPONSE_TIME,
    ))  # fmt: skip


def _pkey_between(source: PortAgent, target: PortAgent, query: _Query, names: set[str]) -> int:
    """Return the P_Key of a path: the one asked for if both ends have it, else a shared one."""
    if "pkey" not in names:
        return common_pkey(source, target)
    wanted = PATH_RECORD.get(query.data, "pkey")
    both = all(any(partitions_match(wanted | 0x8000, key) for key in end.pkeys)
               for end in (source, target))  # fmt: skip
    return wanted if both else 0
