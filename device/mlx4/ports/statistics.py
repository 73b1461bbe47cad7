"""The answers of commands that ask for counters of ports and queue pairs."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.ports import (
    ETH_STATS,
    FLOW_STATS,
    FLOW_STATS_PRIORITIES,
    IF_COUNTER,
)
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.layout.net.roce import BTH_SIZE, GRH_SIZE, ICRC_SIZE
from bluebridge.device.rdma.ports.counters import FrameCounters, InterfaceCounter
from bluebridge.device.rdma.ports.flow_control import FlowControl

HEADERS: Final = HEADER_SIZE + GRH_SIZE + BTH_SIZE + ICRC_SIZE
"""Number of bytes of a RoCE v1 packet around its payload."""
_NARROW: Final = 0xFFFFFFFF


def ethernet_statistics(counters: FrameCounters) -> bytes:
    """Return the answer to DUMP_ETH_STATS."""
    values: dict[str, int] = {}
    for name, direction in (("rx", counters.rx), ("tx", counters.tx)):
        for quantity in ("frames", "octets", "unicast", "multicast", "broadcast"):
            for where, value in enumerate(getattr(direction, quantity)):
                values[f"{name}_{quantity}_{where}"] = value
        values[f"{name}_dropped"] = min(direction.dropped, _NARROW)
    return bytes(
        ETH_STATS.pack(
            values,
            rx_no_buffer=values["rx_dropped"],
            rx_total_frames=sum(counters.rx.frames) & _NARROW,
        )
    )


def flow_statistics(flow: FlowControl) -> bytes:
    """Return the flow control answer to DUMP_ETH_STATS: the same for all priorities."""
    row = FLOW_STATS.pack(
        rx_pause=flow.rx.frames,
        rx_pause_duration=int(flow.rx.duration * 1e6),
        rx_pause_transition=flow.rx.transitions,
        tx_pause=flow.tx.frames,
        tx_pause_duration=int(flow.tx.duration * 1e6),
        tx_pause_transition=flow.tx.transitions,
    )
    return bytes(row) * FLOW_STATS_PRIORITIES


def interface_statistics(counter: InterfaceCounter) -> bytes:
    """Return the answer to QUERY_IF_STAT."""
    return bytes(
        IF_COUNTER.pack(
            interfaces=1,
            rx_frames=counter.rx_packets,
            rx_bytes=counter.rx_bytes + counter.rx_packets * HEADERS,
            tx_frames=counter.tx_packets,
            tx_bytes=counter.tx_bytes + counter.tx_packets * HEADERS,
        )
    )
