"""The management agents of a node: subnet management, and performance management.

An HCA's agent is asked through MAD_IFC (Linux `ib/mad.c: ib_process_mad`), a switch's by the
packets that end there. Rules: InfiniBand vol. 1, 14.2.5 and 16.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.device.fabric.subnet.port import Change, PortAgent, PortCounters, block_bytes
from bluebridge.device.fabric.subnet.port_info import BadField
from bluebridge.device.fabric.subnet.topology import Node
from bluebridge.device.layout.ib.link import FIRST_GROUP_LID
from bluebridge.device.layout.ib.mad import (
    ALL_PORTS,
    CAP_ALL_PORT_SELECT,
    CAP_EXTENDED_WIDTH,
    CLASS_PORT_INFO,
    FORWARDING_BLOCK,
    GUID_BLOCK,
    MAD,
    MAD_SIZE,
    MULTICAST_BLOCK,
    NO_PORT,
    PERF_DATA_OFFSET,
    PKEY_BLOCK,
    PORT_COUNTERS,
    PORT_COUNTERS_EXTENDED,
    PORT_INFO,
    SMP,
    SMP_DATA_OFFSET,
    SMP_DATA_SIZE,
    SWITCH_INFO,
    Method,
    PerfAttribute,
    SmpAttribute,
    SmpStatus,
)

PORTS_PER_MASK = 16
REREGISTER = 0x80

_READ_ONLY = (
    SmpAttribute.NODE_DESCRIPTION, SmpAttribute.NODE_INFO, SmpAttribute.MLNX_EXTENDED_PORT_INFO
)  # fmt: skip
_SWITCH_ONLY = (
    SmpAttribute.SWITCH_INFO, SmpAttribute.LINEAR_FORWARDING, SmpAttribute.MULTICAST_FORWARDING
)  # fmt: skip

RESPONSE_TIME = 18
_NARROW = {"xmit_discards": 0xFFFF, "vl15_dropped": 0xFFFF, "link_downed": 0xFF}
_WIDE = ("xmit_data", "rcv_data", "xmit_packets", "rcv_packets")
_GROUPS = ("multicast_xmit_packets", "multicast_rcv_packets")


class Refused(Exception):
    """A request is answered with a status other than OK."""

    def __init__(self, status: SmpStatus) -> None:
        super().__init__(status.name)
        self.status = status


@dataclass(slots=True)
class _Query:
    """One request for one attribute; `data` is None for a Get."""

    node: Node
    ingress: int
    modifier: int
    data: bytes | None

    def port(self, number: int) -> PortAgent:
        """Return port `number`; on a channel adapter 0 is the port that was asked."""
        wanted = number or (0 if self.node.is_switch else self.ingress)
        port = self.node.ports.get(wanted)
        if port is None:
            raise Refused(SmpStatus.BAD_FIELD)
        return port


def answer_smp(node: Node, ingress: int, smp: bytes, *, trusted: bool = False) -> bytes | None:
    """Return the answer to an SMP that came in at port `ingress`; None where none is due.

    A `trusted` one needs no M_Key. The direction bit of a directed route is left to who sends the
    response.
    """
    get = SMP.get
    method = get(smp, "method")
    if method not in (Method.GET, Method.SET):
        return None
    asked = node.ports[0 if node.is_switch else ingress]
    if not trusted and not asked.management_key.admits(smp):
        return None
    response = _response_to(smp)
    attribute = get(smp, "attr_id")
    handler = _ATTRIBUTES.get(attribute)
    data = SMP.get_raw(smp, "data") if method == Method.SET else None
    try:
        if handler is None or (attribute in _SWITCH_ONLY and not node.is_switch):
            raise Refused(SmpStatus.BAD_ATTRIBUTE)
        if attribute in _READ_ONLY and data is not None:
            raise Refused(SmpStatus.BAD_METHOD)
        result = handler(_Query(node, ingress, get(smp, "attr_mod"), data))
    except Refused as refusal:
        SMP.set(response, "status", int(refusal.status))
    else:
        end = SMP_DATA_OFFSET + SMP_DATA_SIZE
        if handler is _port_info and not (trusted or asked.management_key.shows_key(smp)):
            result = bytes(8) + result[8:]
        response[SMP_DATA_OFFSET:end] = result.ljust(SMP_DATA_SIZE, b"\0")
    return bytes(response)


def _response_to(request: bytes) -> bytearray:
    response = bytearray(request)
    MAD.set(response, "method", int(Method.GET_RESP))
    MAD.set(response, "status", int(SmpStatus.OK))
    return response


def _switch_info(query: _Query) -> bytes:
    info = query.node.switch_info
    if query.data is not None:
        get = SWITCH_INFO.get
        for name in ("linear_top", "default_port", "default_multicast_primary",
                     "default_multicast_other", "life_time", "multicast_top"):  # fmt: skip
            SWITCH_INFO.set(info, name, get(query.data, name))
        if get(query.data, "port_state_change"):
            SWITCH_INFO.set(info, "port_state_change", 0)
    return bytes(info)


def _port_info(query: _Query) -> bytes:
    port = query.port(query.modifier & 0xFF)
    if query.data is None:
        return _port_info_of(query, port)
    try:
        port.set_info(query.data)
    except BadField as error:
        raise Refused(SmpStatus.BAD_FIELD) from error
    result = bytearray(_port_info_of(query, port))
    result[51] |= query.data[51] & REREGISTER
    return bytes(result)


def _port_info_of(query: _Query, port: PortAgent) -> bytes:
    """Return PortInfo, with the port that the request came through as LocalPortNum."""
    info = bytearray(port.info)
    PORT_INFO.set(info, "local_port", query.ingress)
    return bytes(info)


def _guid_info(query: _Query) -> bytes:
    port, block = query.port(0), query.modifier
    if query.data is not None:
        port.set_guids(block, _numbers(query.data, 8))
    return block_bytes(port.guids, block, GUID_BLOCK, 8)


def _pkey_table(query: _Query) -> bytes:
    port = query.port(query.modifier >> 16 if query.node.is_switch else 0)
    block = query.modifier & 0xFFFF
    if query.data is not None:
        port.set_pkeys(block, _numbers(query.data, 2))
    return block_bytes(port.pkeys, block, PKEY_BLOCK, 2)


def _sl2vl(query: _Query) -> bytes:
    port = query.port(query.modifier & 0xFF if query.node.is_switch else 0)
    entering = query.modifier >> 8 & 0xFF
    if query.data is not None:
        port.set_sl2vl(entering, query.data[:8])
    return port.sl2vl.get(entering, b"")


def _arbitration(query: _Query) -> bytes:
    port, block = query.port(query.modifier & 0xFFFF), query.modifier >> 16
    if query.data is not None:
        port.arbitration[block & 7] = query.data
    return port.arbitration.get(block & 7, b"")


def _forwarding(query: _Query) -> bytes:
    table, first = query.node.forwarding, query.modifier * FORWARDING_BLOCK
    if first >= FIRST_GROUP_LID:
        raise Refused(SmpStatus.BAD_FIELD)
    if query.data is not None:
        table.update(enumerate(query.data, first))
        query.port(0).tell(Change.ROUTES)
    return bytes(table.get(lid, NO_PORT) for lid in range(first, first + FORWARDING_BLOCK))


def _multicast(query: _Query) -> bytes:
    table, shift = query.node.multicast, (query.modifier >> 28) * PORTS_PER_MASK
    first = FIRST_GROUP_LID + (query.modifier & 0x1FF) * MULTICAST_BLOCK
    lids = range(first, first + MULTICAST_BLOCK)
    if query.data is not None:
        for lid, mask in zip(lids, _numbers(query.data, 2), strict=True):
            table[lid] = table.get(lid, 0) & ~(0xFFFF << shift) | mask << shift
        query.port(0).tell(Change.ROUTES)
    masks = (table.get(lid, 0) >> shift & 0xFFFF for lid in lids)
    return b"".join(mask.to_bytes(2, "big") for mask in masks)


def _numbers(data: bytes, size: int) -> list[int]:
    return [int.from_bytes(data[at : at + size], "big") for at in range(0, len(data), size)]


_ATTRIBUTES: dict[int, Callable[[_Query], bytes]] = {
    SmpAttribute.NODE_DESCRIPTION: lambda query: query.node.described(),
    SmpAttribute.NODE_INFO: lambda query: query.node.info(query.ingress),
    SmpAttribute.SWITCH_INFO: _switch_info,
    SmpAttribute.GUID_INFO: _guid_info,
    SmpAttribute.PORT_INFO: _port_info,
    SmpAttribute.PKEY_TABLE: _pkey_table,
    SmpAttribute.SL2VL_TABLE: _sl2vl,
    SmpAttribute.VL_ARB_TABLE: _arbitration,
    SmpAttribute.LINEAR_FORWARDING: _forwarding,
    SmpAttribute.MULTICAST_FORWARDING: _multicast,
    # no FDR10 (Linux `ib/main.c: ib_link_query_port`)
    SmpAttribute.MLNX_EXTENDED_PORT_INFO: lambda query: b"",
}


def answer_perf(node: Node, ingress: int, mad: bytes) -> bytes | None:
    """Return the answer to a performance management MAD; None for one that gets no response."""
    method = MAD.get(mad, "method")
    if method not in (Method.GET, Method.SET):
        return None
    response, data = _response_to(mad), mad[PERF_DATA_OFFSET:]
    try:
        result = _performance(node, ingress, MAD.get(mad, "attr_id"), data, method == Method.SET)
    except Refused as refusal:
        MAD.set(response, "status", int(refusal.status))
    else:
        response[PERF_DATA_OFFSET:] = bytes(result).ljust(MAD_SIZE - PERF_DATA_OFFSET, b"\0")
    return bytes(response)


def _performance(node: Node, ingress: int, attribute: int, data: bytes, resets: bool) -> bytearray:
    if attribute == PerfAttribute.CLASS_PORT_INFO:
        return CLASS_PORT_INFO.pack(
            base_version=1, class_version=1,
            capabilities=CAP_EXTENDED_WIDTH | CAP_ALL_PORT_SELECT * node.is_switch,
            response_time=RESPONSE_TIME,
        )  # fmt: skip
    if attribute not in (PerfAttribute.PORT_COUNTERS, PerfAttribute.PORT_COUNTERS_EXTENDED):
        raise Refused(SmpStatus.BAD_ATTRIBUTE)
    number = PORT_COUNTERS.get(data, "port")  # or all ports, or (0) the port that was asked
    port = node.ports.get(number or (0 if node.is_switch else ingress))
    ports = node.ports.values() if number == ALL_PORTS else (port,) if port is not None else ()
    selected = [each.counters for each in ports]
    if not selected:
        raise Refused(SmpStatus.BAD_FIELD)
    if resets and PORT_COUNTERS.get(data, "select"):
        for counters in selected:
            counters.reset()
    wide = attribute == PerfAttribute.PORT_COUNTERS_EXTENDED
    result = (_extended if wide else _basic)(selected)
    result[:4] = data[:4]
    return result


def _sum(counters: list[PortCounters], name: str) -> int:
    return sum(getattr(each, name) for each in counters)


def _basic(counters: list[PortCounters]) -> bytearray:
    """Return PortCounters, whose narrow fields stay at their largest value."""
    values = {name: min(_sum(counters, name), 0xFFFFFFFF) for name in _WIDE}
    values |= {name: min(_sum(counters, name), limit) for name, limit in _NARROW.items()}
    return PORT_COUNTERS.pack(values)


def _extended(counters: list[PortCounters]) -> bytearray:
    values = {name: _sum(counters, name) & ((1 << 64) - 1) for name in (*_WIDE, *_GROUPS)}
    for way in ("xmit", "rcv"):
        values[f"unicast_{way}_packets"] = (
            values[f"{way}_packets"] - values[f"multicast_{way}_packets"]
        )
    return PORT_COUNTERS_EXTENDED.pack(values)
