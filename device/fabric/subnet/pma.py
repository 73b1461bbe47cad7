"""The performance management agent of a node, which reads and clears port counters."""

from __future__ import annotations

from bluebridge.device.fabric.subnet.counters import PortCounters
from bluebridge.device.fabric.subnet.node import Node
from bluebridge.device.layout.ib.perf import (
    ALL_PORTS,
    CAP_ALL_PORT_SELECT,
    CAP_EXTENDED_WIDTH,
    CLASS_PORT_INFO,
    PERF_DATA_OFFSET,
    PORT_COUNTERS,
    PORT_COUNTERS_EXTENDED,
    PerfAttribute,
)
from bluebridge.device.layout.ib.smp import SmpStatus
from bluebridge.device.layout.net.mad import MAD, MAD_SIZE, Method

RESPONSE_TIME = 18
_NARROW = {"xmit_discards": 0xFFFF, "vl15_dropped": 0xFFFF, "link_downed": 0xFF}
_WIDE = ("xmit_data", "rcv_data", "xmit_packets", "rcv_packets")
_GROUPS = ("multicast_xmit_packets", "multicast_rcv_packets")


def answer_perf(node: Node, ingress: int, mad: bytes) -> bytes | None:
    """Return the answer to a performance management MAD; None for one that gets no response."""
    method = MAD.get(mad, "method")
    if method not in (Method.GET, Method.SET):
        return None
    response = bytearray(mad)
    MAD.set(response, "method", int(Method.GET_RESP))
    MAD.set(response, "status", int(SmpStatus.OK))
    attribute = MAD.get(mad, "attr_id")
    data = mad[PERF_DATA_OFFSET:]
    if attribute == PerfAttribute.CLASS_PORT_INFO:
        result = CLASS_PORT_INFO.pack(
            base_version=1,
            class_version=1,
            capabilities=CAP_EXTENDED_WIDTH | CAP_ALL_PORT_SELECT * node.is_switch,
            response_time=RESPONSE_TIME,
        )
    elif attribute in (PerfAttribute.PORT_COUNTERS, PerfAttribute.PORT_COUNTERS_EXTENDED):
        selected = _selected(node, ingress, PORT_COUNTERS.get(data, "port"))
        if selected is None:
            MAD.set(response, "status", int(SmpStatus.BAD_FIELD))
            return bytes(response)
        if method == Method.SET and PORT_COUNTERS.get(data, "select"):
            for counters in selected:
                counters.reset()
        wide = attribute == PerfAttribute.PORT_COUNTERS_EXTENDED
        result = (_extended if wide else _basic)(selected)
        result[:4] = data[:4]
    else:
        MAD.set(response, "status", int(SmpStatus.BAD_ATTRIBUTE))
        return bytes(response)
    response[PERF_DATA_OFFSET:] = bytes(result).ljust(MAD_SIZE - PERF_DATA_OFFSET, b"\0")
    return bytes(response)


def _selected(node: Node, ingress: int, number: int) -> list[PortCounters] | None:
    """Return the counters of port `number`, of all ports, or (0) of the port that was asked."""
    if number == ALL_PORTS:
        return [port.counters for port in node.ports.values()]
    port = node.ports.get(number or (0 if node.is_switch else ingress))
    return None if port is None else [port.counters]


def _sum(counters: list[PortCounters], name: str) -> int:
    return sum(getattr(each, name) for each in counters)


def _basic(counters: list[PortCounters]) -> bytearray:
    """Return PortCounters, whose narrow fields stay at their largest value."""
    values = {name: min(_sum(counters, name), 0xFFFFFFFF) for name in _WIDE}
    values |= {name: min(_sum(counters, name), limit) for name, limit in _NARROW.items()}
    return PORT_COUNTERS.pack(values)


def _extended(counters: list[PortCounters]) -> bytearray:
    values = {name: _sum(counters, name) & (1 << 64) - 1 for name in (*_WIDE, *_GROUPS)}
    for way in ("xmit", "rcv"):
        values[f"unicast_{way}_packets"] = (
            values[f"{way}_packets"] - values[f"multicast_{way}_packets"]
        )
    return PORT_COUNTERS_EXTENDED.pack(values)
