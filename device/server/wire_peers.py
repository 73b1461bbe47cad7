"""The hosts on a wire of packets, as options name them."""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Final

from bluebridge.device.underlay.tunnel import Endpoint

MESSAGES, PACKETS = KINDS = ("messages", "packets")
"""What travels between the ports of one server; anything else names other hosts, for packets."""
MOST_HOSTS: Final = 16
_ENDPOINT = re.compile(r"(?:\[([^][]+)\]|([^][:]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The addresses of a wire between hosts: one's own, and those of the others."""

    own: Endpoint
    peers: tuple[Endpoint, ...]

    @property
    def site(self) -> int:
        """The number of this host among all, from 0; hosts that name each other agree on it."""
        return sorted((self.own, *self.peers), key=_order).index(self.own)


def _order(endpoint: Endpoint) -> tuple[int, int, int]:
    address = ipaddress.ip_address(endpoint.host)
    return address.version, int(address), endpoint.port


def wire(text: str) -> str:
    """Check `messages`, `packets` or `HOST:PORT[,HOST:PORT...]`.

    Raises `argparse.ArgumentTypeError`.
    """
    if text not in KINDS:
        for word in text.split(","):
            if not _is_endpoint(word):
                raise argparse.ArgumentTypeError(
                    f"{text!r}: write messages, packets, or HOST:PORT of another lab"
                )
        if text.count(",") >= MOST_HOSTS - 1:
            raise argparse.ArgumentTypeError(f"more than {MOST_HOSTS} hosts with this one")
    return text


def own_address(text: str) -> str:
    """Check `HOST:PORT`, where HOST may be `[ADDRESS]`. Raises `argparse.ArgumentTypeError`."""
    if not _is_endpoint(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write ADDRESS:PORT")
    return text


def _is_endpoint(text: str) -> bool:
    found = _ENDPOINT.fullmatch(text)
    return found is not None and 0 < int(found[3]) < 1 << 16


def between_hosts(wire: str) -> bool:
    """Return whether a wire leads to other hosts."""
    return wire not in KINDS


def hosts(wire: str, own: str = "") -> Hosts:
    """Return the addresses of a wire that leads to other hosts; names are looked up.

    Without `own` it is the address from which the first host is reached, with that host's port.
    Raises `ValueError` with one line.
    """
    peers = tuple(_resolve(word) for word in wire.split(","))
    mine = _resolve(own) if own else Endpoint(_way_to(peers[0]), peers[0].port)
    if ipaddress.ip_address(mine.host).is_unspecified:
        raise ValueError(f"--underlay {mine} is all addresses: name one, which others know")
    if mine in peers or len(set(peers)) < len(peers):
        raise ValueError(
            f"--wire {wire}: {mine if mine in peers else 'a host'} is named twice: give this lab "
            "another address with --underlay ADDRESS:PORT"
        )
    return Hosts(mine, peers)


def _resolve(text: str) -> Endpoint:
    found = _ENDPOINT.fullmatch(text)
    assert found is not None, "checked when the option was read"
    name = found[1] or found[2]
    try:
        first = socket.getaddrinfo(name, int(found[3]), type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise ValueError(f"--wire {text}: {name}: {error.strerror or error}") from None
    return Endpoint(str(first[4][0]), int(found[3]))


def _way_to(peer: Endpoint) -> str:
    """Return the address from which a host is reached; nothing is sent."""
    family = socket.AF_INET6 if ":" in peer.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect(peer)
            return str(asking.getsockname()[0])
    except OSError as error:
        raise ValueError(f"--wire {peer}: no way there: {error.strerror}") from None
