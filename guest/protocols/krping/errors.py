"""The errors with which a krping thread ends."""

from __future__ import annotations

import errno
import ipaddress
import os

from bluebridge.device.layout.net.cm import RejectReason
from bluebridge.guest.connections import PREFIX_LENGTHS
from bluebridge.guest.protocols.cm import CmEvent, EventType
from bluebridge.guest.protocols.krping.option_string import Options


class KrpingError(Exception):
    """The run failed; the text is one line for the user."""


class Cancelled(Exception):
    """The user ended the run."""


def explain(event: CmEvent, options: Options) -> str:
    """Return one line for the user about a connection that did not come up."""
    addr, port = options.addr, options.port
    if event.status == -errno.ENETUNREACH:
        bits = PREFIX_LENGTHS[ipaddress.ip_address(addr).version]
        return f"{addr} is not in this HCA's network of {bits} bits: there is no router here"
    if event.type in (EventType.ADDR_ERROR, EventType.ROUTE_ERROR):
        return f"nobody answers at {addr}: is krping running on the server with that address?"
    if event.type is EventType.REJECTED and event.status == RejectReason.INVALID_SERVICE_ID:
        return f"nobody listens on port {port} at {addr}: start the krping server first"
    if event.type is EventType.REJECTED and event.status == RejectReason.STALE_CONNECTION:
        return (
            f"{addr} still had the connection of a client that ended without a word: "
            "start the client again"
        )
    if event.type is EventType.REJECTED:
        return f"{addr} port {port} rejected the connection, reason {event.status}"
    reason = os.strerror(-event.status)
    return f"{addr} port {port} does not answer connection requests ({reason})"
