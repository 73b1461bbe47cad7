"""A krping run's addresses, and its last iteration in the bus log."""

from __future__ import annotations

from collections import deque
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import cqe, uar
from bluebridge.device.layout.mlx5 import cqe as mlx5_cqe
from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.mlx5.cqe import CqeOpcode
from bluebridge.host_tools.analyzer.event_lines import HEADER, table_line
from bluebridge.host_tools.errors import UsageError

_WINDOW = 20_000  # events looked at from the end: an iteration and the tear-down after it
_DOORBELLS = 2  # of the client in an iteration: it advertises its source, then its sink
_AFTERMATH = 8  # events after the last completion among which its interrupt is looked for

_RESPONSES = (
    CqeOpcode.RESPONSE_WRITE_IMM,
    CqeOpcode.RESPONSE_SEND,
    CqeOpcode.RESPONSE_SEND_IMM,
    CqeOpcode.RESPONSE_SEND_INV,
)


def server_address(server: str, client: str) -> str:
    """The address of the server guest's HCA, given both `addr` or `addr6` options.

    A server may listen on 0.0.0.0 or ::; then it has the address the client asks for. Raises
    `UsageError` when the client asks for an address that no guest has, or no host can have.
    """
    listening, wanted = ip_address(server), ip_address(client)
    if not _is_host(wanted):
        raise UsageError(f"addr={client} is not the address of a host", "choose another address")
    if int(listening) == 0:
        return client
    if listening != wanted:
        raise UsageError(
            f"addr={client} is unreachable: the server guest has {server}",
            "give server and client the same addr",
        )
    return server


def _is_host(address: IPv4Address | IPv6Address) -> bool:
    """Whether a host may have it: unicast, and neither network nor broadcast of its /24."""
    special = address.is_multicast or address.is_loopback or address.is_unspecified
    if address.version == 6:
        return not special
    special = special or address.is_reserved
    return not special and int(address) >> 24 != 0 and int(address) & 0xFF not in (0, 0xFF)


def last_iteration(folder: Path, client: str = "b") -> list[str]:
    """Table lines from the client's advertisement of its source to its last go-ahead.

    One line that says why instead, when the log is not there or holds no whole iteration.
    """
    try:
        events = list(deque(LogReader(folder).tail(), maxlen=_WINDOW))
    except LogError as error:
        return [f"no bus log: {error}"]
    found = _bounds(events, client)
    if found is None:
        return ["the log holds no whole iteration"]
    begin, end = found
    return [HEADER, *(table_line(event) for event in events[begin:end])]


def _bounds(events: list[Event], client: str) -> tuple[int, int] | None:
    """Indices of the first event of the last iteration and of the one after it."""
    # Message bytes of the client's connected queue pair; datagrams are of other kinds.
    payloads = (e for e in reversed(events) if e.device == client and e.what is What.PAYLOAD)
    qpn = next((event.obj for event in payloads), None)
    if qpn is None:
        return None
    arrived = [i for i, event in enumerate(events) if _is_go_ahead(event, client, qpn)]
    if not arrived:
        return None
    last = arrived[-1]
    rung = [i for i in range(last) if _is_doorbell(events[i], client, qpn)]
    if len(rung) < _DOORBELLS:
        return None
    return rung[-_DOORBELLS], _after_interrupt(events, last, client)


def _is_doorbell(event: Event, client: str, qpn: int) -> bool:
    if event.device != client or event.kind is not Kind.MMIO_WRITE or event.bar not in (0, 2):
        return False
    registers = uar.UAR if event.bar == 2 else init_segment.UAR
    found = registers.find(event.address)
    if found is None or not found[1].name.startswith("send"):
        return False
    # The number stands in the last word: that of a ConnectX-5 has the entry's index before it.
    return int.from_bytes(event.data[-4:], registers.order) >> 8 == qpn


def _is_go_ahead(event: Event, client: str, qpn: int) -> bool:
    """A receive of the client's queue pair was completed without error."""
    if event.device != client or event.what is not What.CQE or len(event.data) < cqe.CQE_SIZE:
        return False
    if len(event.data) == mlx5_cqe.CQE_SIZE:
        get = mlx5_cqe.CQE.get
        return get(event.data, "qpn") == qpn and get(event.data, "opcode") in _RESPONSES
    entry = {name: cqe.CQE.get(event.data, name) for name in ("qpn", "is_send", "opcode")}
    return entry["qpn"] == qpn and not entry["is_send"] and entry["opcode"] != cqe.OPCODE_ERROR


def _after_interrupt(events: list[Event], last: int, client: str) -> int:
    """The index behind the interrupt that tells of the completion at `last`, if one follows."""
    for index in range(last + 1, min(last + 1 + _AFTERMATH, len(events))):
        if events[index].device == client and events[index].kind is Kind.IRQ:
            return index + 1
    return last + 1
