"""The text of GIDs as people write them."""

from __future__ import annotations

from ipaddress import IPv6Address


def gid_text(gid: bytes) -> str | None:
    """Return a GID as text such as `fe80::202:c9ff:fe00:1`; None for zeros.

    One of an IPv4 address is `::ffff:10.9.0.1`.
    """
    if not any(gid):
        return None
    address = IPv6Address(gid)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)
