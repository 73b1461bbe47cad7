"""The fields of datagrams that flow steering rules match (`ethernet.rules.fields`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.ethernet import rules
from bluebridge.device.ethernet.frames.frame import FrameHeaders, transport_number
from bluebridge.device.ethernet.rules import Member
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.layout.net.ipoib import HEADER_SIZE
from bluebridge.device.rdma.ports.port import Port

_NOBODY: Final[Sequence[Member]] = ()


def steered(port: Port, message: Datagram) -> Sequence[Member]:
    """Return the queue pairs that the rules of a port give a datagram to; empty for none."""
    entry = port.rules.find_datagram(number_of(message))
    return _NOBODY if entry is None else entry.targets


def number_of(message: Datagram) -> int:
    """Return a datagram's destination GID, queue pair, IPoIB addresses and ports as one number."""
    payload = message.payload
    headers = FrameHeaders(payload, HEADER_SIZE)
    return (
        rules.INFINIBAND
        | int.from_bytes(message.route.dgid, "big") << rules.DGID
        | message.target_qpn << rules.QPN
        | transport_number(payload, headers)
    )
