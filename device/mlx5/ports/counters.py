"""The counters of a port in the groups in which drivers read them.

Those of the physical port have every good frame from the wire, also one that steering drops, as
Linux `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst` says of
`rx_packets_phy`; those of the virtual port have what it got. Linux `core/en_stats.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.layout.mlx5.objects import Q_COUNTERS, VPORT_COUNTERS
from bluebridge.device.layout.mlx5.port_registers import (
    IEEE_802_3,
    PER_PRIORITY,
    RFC_2819,
    RFC_2863,
    CounterGroup,
)
from bluebridge.device.mlx5.ports.vport import FCS_BYTES
from bluebridge.device.rdma.ports.counters import (
    NO_VLAN_CLASS,
    Diagnostics,
    Direction,
    InterfaceCounter,
    Trouble,
)
from bluebridge.device.rdma.ports.port import Port

_WORD: Final = 0xFFFFFFFF
_SEND_ERRORS: Final = {
    "local_operation_error": Trouble.SEND_OPERATION,
    "req_local_length_error": Trouble.SEND_LENGTH,
    "req_local_protection": Trouble.SEND_PROTECTION,
    "req_mw_binding": Trouble.SEND_BINDING,
    "req_bad_response": Trouble.SEND_BAD_ANSWER,
    "req_remote_invalid_request": Trouble.SEND_INVALID_REQUEST,
    "req_remote_access_errors": Trouble.SEND_REMOTE_ACCESS,
    "req_remote_operation_errors": Trouble.SEND_REMOTE_OPERATION,
    "req_transport_retries_exceeded": Trouble.SEND_RETRIES_USED_UP,
    "req_rnr_retries_exceeded": Trouble.SEND_RNR_RETRIES_USED_UP,
}
_RECEIVE_ERRORS: Final = {
    "resp_local_length_error": Trouble.RECEIVE_LENGTH,
    "resp_local_qp_error": Trouble.RECEIVE_OPERATION,
    "resp_local_protection": Trouble.RECEIVE_PROTECTION,
}
_EVENTS: Final = {
    "out_of_sequence": Trouble.SEQUENCE_NAK_SENT,
    "duplicate_request": Trouble.DUPLICATE_CAME,
    "rnr_nak_retry_err": Trouble.RNR_NAK_CAME,
    "packet_seq_err": Trouble.SEQUENCE_NAK_CAME,
    "local_ack_timeout_err": Trouble.TIMED_OUT,
    "resp_remote_invalid_request": Trouble.INVALID_REQUEST_NAK_SENT,
    "resp_remote_access_errors": Trouble.REMOTE_ACCESS_NAK_SENT,
    "req_cqe_flush_error": Trouble.SEND_FLUSHED,
    "resp_cqe_flush_error": Trouble.RECEIVE_FLUSHED,
}


def _octets(direction: Direction) -> int:
    """Return the octets of all frames, the check sequence of each included."""
    return sum(direction.octets) + FCS_BYTES * sum(direction.frames)


def ieee_802_3(port: Port, priority: int) -> bytes:
    """Return the counters of IEEE 802.3."""
    rx, tx = port.counters.arrived(), port.counters.tx
    pause_rx, pause_tx = port.flow.rx.frames, port.flow.tx.frames
    return bytes(
        IEEE_802_3.pack(
            frames_transmitted_ok=sum(tx.frames),
            frames_received_ok=sum(rx.frames),
            octets_transmitted_ok=_octets(tx),
            octets_received_ok=_octets(rx),
            multicast_frames_transmitted_ok=sum(tx.multicast),
            broadcast_frames_transmitted_ok=sum(tx.broadcast),
            multicast_frames_received_ok=sum(rx.multicast),
            broadcast_frames_received_ok=sum(rx.broadcast),
            frame_too_long_errors=rx.too_long,
            mac_control_frames_transmitted=pause_tx,
            mac_control_frames_received=pause_rx,
            pause_frames_received=pause_rx,
            pause_frames_transmitted=pause_tx,
        )
    )


def rfc_2863(port: Port, priority: int) -> bytes:
    """Return the counters of the interfaces group."""
    rx, tx = port.counters.arrived(), port.counters.tx
    return bytes(
        RFC_2863.pack(
            in_octets=_octets(rx),
            in_unicast_packets=sum(rx.unicast),
            in_discards=rx.dropped,
            in_multicast_packets=sum(rx.multicast),
            in_broadcast_packets=sum(rx.broadcast),
            out_octets=_octets(tx),
            out_unicast_packets=sum(tx.unicast),
            out_discards=tx.dropped,
            out_multicast_packets=sum(tx.multicast),
            out_broadcast_packets=sum(tx.broadcast),
        )
    )


def rfc_2819(port: Port, priority: int) -> bytes:
    """Return the counters of remote monitoring."""
    rx = port.counters.arrived()
    return bytes(
        RFC_2819.pack(
            drop_events=rx.dropped,
            octets=_octets(rx),
            packets=sum(rx.frames),
            broadcast_packets=sum(rx.broadcast),
            multicast_packets=sum(rx.multicast),
            oversize_packets=rx.too_long,
        )
    )


def per_priority(port: Port, priority: int) -> bytes:
    """Return the counters of one priority; frames without a tag have priority 0."""
    rx, tx = port.counters.arrived(), port.counters.tx
    classes = [priority % NO_VLAN_CLASS] + ([] if priority else [NO_VLAN_CLASS])
    values = {
        "rx_octets": sum(rx.octets[one] + FCS_BYTES * rx.frames[one] for one in classes),
        "rx_frames": sum(rx.frames[one] for one in classes),
        "tx_octets": sum(tx.octets[one] + FCS_BYTES * tx.frames[one] for one in classes),
        "tx_frames": sum(tx.frames[one] for one in classes),
    }
    if not priority:  # pauses of the whole port count as those of priority 0
        for name, pauses in (("rx", port.flow.rx), ("tx", port.flow.tx)):
            values[f"{name}_pause"] = pauses.frames
            values[f"{name}_pause_duration"] = int(pauses.duration * 1_000_000)
        values["rx_pause_transition"] = port.flow.rx.transitions
    return bytes(PER_PRIORITY.pack(values))


GROUPS: Final[dict[int, Callable[[Port, int], bytes]]] = {
    CounterGroup.IEEE_802_3: ieee_802_3,
    CounterGroup.RFC_2863: rfc_2863,
    CounterGroup.RFC_2819: rfc_2819,
    CounterGroup.PER_PRIORITY: per_priority,
}
"""The groups of PPCNT whose counters are not always zero."""


def q_counters(troubles: Diagnostics, missed: int) -> bytes:
    """Return a set of counters as QUERY_Q_COUNTER has it.

    `missed`: what found no receive in RQs. A connection's message without one is an RNR NAK.
    """
    counts = troubles.counts
    values = {
        name: counts.get(trouble, 0)
        for name, trouble in (_SEND_ERRORS | _RECEIVE_ERRORS | _EVENTS).items()
    }
    values |= {
        "rx_write_requests": troubles.writes,
        "rx_read_requests": troubles.reads,
        "rx_atomic_requests": troubles.atomics,
    }
    values["req_cqe_error"] = values["req_cqe_flush_error"] + sum(
        values[name] for name in _SEND_ERRORS
    )
    values["resp_cqe_error"] = values["resp_cqe_flush_error"] + sum(
        values[name] for name in _RECEIVE_ERRORS
    )
    without = (Trouble.RNR_NAK_SENT, Trouble.DATAGRAM_WITHOUT_RECEIVE)
    values["out_of_buffer"] = missed + sum(counts.get(trouble, 0) for trouble in without)
    return bytes(Q_COUNTERS.pack({name: value & _WORD for name, value in values.items()}))


def vport_counters(port: Port, messages: InterfaceCounter) -> bytes:
    """Return the counters of the virtual port (QUERY_VPORT_COUNTER): frames without their FCS.

    `messages` are the packets of queue pairs, which are no frames of the network device.
    """
    values = {
        "received_ib_unicast_packets": messages.rx_packets,
        "received_ib_unicast_octets": messages.rx_bytes,
        "transmitted_ib_unicast_packets": messages.tx_packets,
        "transmitted_ib_unicast_octets": messages.tx_bytes,
    }
    for name, direction in (("received", port.counters.rx), ("transmitted", port.counters.tx)):
        for kind in ("unicast", "multicast", "broadcast"):
            values[f"{name}_{kind}_packets"] = sum(getattr(direction, kind))
        # Octets are counted for all kinds together, and most frames are unicast ones.
        values[f"{name}_unicast_octets"] = sum(direction.octets)
    return bytes(VPORT_COUNTERS.pack(values))
