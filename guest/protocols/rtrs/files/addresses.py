"""The addresses of paths in the kernel's notation: ip:10.9.0.2@ip:10.9.0.1."""

from __future__ import annotations

import errno
import ipaddress

from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair

_PREFIX = "ip:"
_NOTHING = "<invalid address family>"


def address_text(address: str) -> str:
    """Return an address in the kernel's notation; "" stands for an unknown one."""
    return f"{_PREFIX}{address}" if address else _NOTHING


def pair_text(pair: AddressPair) -> str:
    """Return the name of a path's directory."""
    return f"{address_text(pair.source)}@{address_text(pair.destination)}"


def parse_pair(words: str) -> AddressPair:
    """Parse [SOURCE@]DESTINATION, or with a comma; raises `OSError` with EINVAL.

    IPv6 addresses and GIDs, which the kernel takes as well, are refused.
    """
    separator = "," if "," in words else "@"
    source, found, destination = words.partition(separator)
    if not found:
        return AddressPair("", _parse(source))
    return AddressPair(_parse(source), _parse(destination))


def _parse(words: str) -> str:
    try:
        if not words.startswith(_PREFIX):
            raise ValueError(words)
        return str(ipaddress.IPv4Address(words.removeprefix(_PREFIX)))
    except ValueError:
        raise OSError(errno.EINVAL, f"{words!r} is not ip:ADDRESS") from None
