"""The IP addresses of the guests in a krping run, from its two strings."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from bluebridge.host_tools.errors import UsageError


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
