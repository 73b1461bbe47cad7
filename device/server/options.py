"""Options of the device server for its HCAs and its bridge, each declared in one place.

A field of `ServerOptions` or `BridgeOptions` is an option of `python -m bluebridge.device`, see
`bluebridge.device.server.option_table`.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Final

from bluebridge.device import cards
from bluebridge.device.buslog.packing import CAPTURE, WINDOW_CAPTURE
from bluebridge.device.buslog.record import MOST_CAPTURE
from bluebridge.device.buslog.segments import TOTAL_BYTES
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.layout.net.ip import MAX_VNI
from bluebridge.device.layout.ntb.models import (
    ALIASING,
    BY_NAME,
    DEFAULT,
    HANGING,
    BarSizes,
    BridgeModel,
    names,
)
from bluebridge.device.mlx4.settings.config import BLUEFLAME_REGISTERS, MAX_PORTS, PLAIN
from bluebridge.device.server.option_table import option
from bluebridge.device.underlay.tunnel import Endpoint

MESSAGES, PACKETS = KINDS = ("messages", "packets")
"""What travels between the ports of one server; anything else names other hosts, for packets."""
MOST_HOSTS: Final = 16
_ENDPOINT = re.compile(r"(?:\[([^][]+)\]|([^][:]+)):([0-9]{1,5})")

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LEAST_LOG = 1 << 20
"""The smallest permitted limit of a bus log, in bytes."""

MOST_FACTOR: Final = 4.0
"""What the specification lets an acknowledge time-out last (InfiniBand vol. 1, 9.7.6.1.3)."""

DEFAULT_VNI = 77
LINKS = tuple(link.value for link in LinkLayer)


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """The options for a server's bridge and for how DMA engines treat a closed window.

    Combinations of options are not checked here: the server refuses wrong ones when it starts.
    """

    ntb_model: str = option(
        DEFAULT.name, f"which bridge (default {DEFAULT.name})", choices=tuple(BY_NAME)
    )
    bar_sizes: str = option(
        BarSizes.SMALL.value,
        "the bridge's windows: 1 MiB each (small, default), or 4 GiB for the second (ntrdma)",
        choices=tuple(each.value for each in BarSizes),
    )
    window_alias: bool = option(
        False,
        f"the second window of {names(ALIASING)}, of 4 GiB (--bar-sizes {BarSizes.NTRDMA}), is the "
        "peer's memory itself, at the same addresses: processors store there at the speed of "
        "memory, it never closes, and the peer's QEMU is handed the file of all that memory",
    )
    hang_on: tuple[str, ...] = option(
        (),
        f"play an erratum of {names(HANGING)} out instead of counting it: the "
        "bridge answers nothing any more until it is reset",
        choices=tuple(erratum for model in HANGING for erratum in model.errata),
    )
    strict_windows: bool = option(
        False, "a DMA copy into a closed window is an error, where hardware notices nothing"
    )

    @property
    def model(self) -> BridgeModel:
        """The bridge model named by `ntb_model`; raises `KeyError` for an unknown name."""
        return BY_NAME[self.ntb_model]


BRIDGE_DEFAULTS = BridgeOptions()
"""The options of a bridge for which the command line sets none."""


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
    """Check `messages`, `packets` or hosts; raises `argparse.ArgumentTypeError`."""
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


def byte_count(text: str) -> int:
    """Parse a number of bytes, 0 or more; raises `argparse.ArgumentTypeError`."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes, 0 or more")
    return int(text)


def capture_bytes(text: str) -> int:
    """Parse how much of a transfer is kept; raises `argparse.ArgumentTypeError`."""
    size = byte_count(text)
    if size > MOST_CAPTURE:
        raise argparse.ArgumentTypeError(f"{text} is more than a log keeps, {MOST_CAPTURE} bytes")
    return size


def log_limit(text: str) -> int:
    """Parse a size, `4GiB` or bytes, at least `LEAST_LOG`; raises `argparse.ArgumentTypeError`."""
    unit = _UNITS.get(text[-3:], 1)
    size = byte_count(text if unit == 1 else text[:-3]) * unit
    if size < LEAST_LOG:
        raise argparse.ArgumentTypeError(f"{text} is less than 1MiB")
    return size


def ack_timeout_factor(text: str) -> float:
    """Parse a factor from 1 to `MOST_FACTOR`; raises `argparse.ArgumentTypeError`."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1.0 <= factor <= MOST_FACTOR:
        raise argparse.ArgumentTypeError(f"{text} is no factor from 1 to {MOST_FACTOR:g}")
    return factor


def vni(text: str) -> int:
    """Parse the number of a VXLAN network; raises `argparse.ArgumentTypeError`."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= MAX_VNI:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 to {MAX_VNI}")
    return int(text)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options for all HCAs of a server and for its recordings.

    Values are not checked here: the server refuses wrong ones when it starts.
    """

    card: str = option(
        cards.DEFAULT,
        f"which adapter: {' or '.join(cards.CARDS)} (default {cards.DEFAULT}); several names are "
        "for a, b and so on",
        metavar="CARD[,CARD...]",
        read=cards.card_names,
    )
    link: str = option(
        LinkLayer.ETHERNET.value, "what the ports speak (default ethernet)", choices=LINKS
    )
    sm: str = option(
        "builtin",
        "who manages InfiniBand: the switch (builtin, default), or opensm in a guest (none)",
        choices=("builtin", "none"),
    )
    ports: int = option(
        1, "ports of each HCA (default 1)", choices=tuple(range(1, MAX_PORTS + 1)), read=int
    )
    blueflame: str = option(
        "off", "advertise BlueFlame, sends without a doorbell (default off)", choices=("on", "off")
    )
    blueflame_size: int = option(
        PLAIN.blueflame_register,
        f"of a BlueFlame register, two buffers: {', '.join(map(str, BLUEFLAME_REGISTERS))} "
        f"(default {PLAIN.blueflame_register}); entries of at most half of it are sent through "
        "BlueFlame",
        choices=BLUEFLAME_REGISTERS,
        metavar="BYTES",
        read=int,
    )
    pro: bool = option(False, "ConnectX-3 Pro: RoCE v2 as well as v1")
    wire: str = option(
        MESSAGES,
        "what travels between the ports: whole messages (default), or packets, byte for byte those "
        "of RoCE; HOST:PORT[,HOST:PORT...] joins them with the labs there, packets in VXLAN over "
        "UDP, neither encrypted nor authenticated",
        metavar="messages|packets|HOST:PORT",
        read=wire,
    )
    underlay: str = option(
        "",
        "own address of a wire to other hosts (default: that from which the first is reached, and "
        "its port)",
        metavar="ADDRESS:PORT",
        read=own_address,
    )
    vni: int = option(
        DEFAULT_VNI,
        f"VXLAN network identifier of a wire to other hosts (default {DEFAULT_VNI})",
        metavar="N",
        read=vni,
    )
    ack_timeout_factor: float = option(
        0.0,
        f"acknowledge time-outs of packets last so many times 4.096 us * 2^code, 1 to "
        f"{MOST_FACTOR:g}, but those that are stretched no longer than half a second (default: 1, "
        f"or {MOST_FACTOR:g} with Soft-RoCE or another host on the wire)",
        metavar="N",
        read=ack_timeout_factor,
    )
    rnr: str = option(
        "hardware",
        "a sender that met RNR timer code 0, which means 655.36 ms, tries again after that time "
        "as hardware does (default), or every millisecond (fast)",
        choices=("fast", "hardware"),
    )
    large_cqes: bool = option(False, "offer completion entries of 64 bytes")
    capture: int = option(
        CAPTURE,
        f"what the log keeps of each transfer (default {CAPTURE}), and of each message on the wire "
        f"or access through a bridge's window ({WINDOW_CAPTURE}) if that is more than it keeps "
        "anyway",
        metavar="BYTES",
        read=capture_bytes,
    )
    log_limit: int = option(
        TOTAL_BYTES,
        f"how large the bus log may be, such as 4GiB (default {TOTAL_BYTES >> 20}MiB): its oldest "
        "events are deleted and counted",
        metavar="SIZE",
        read=log_limit,
    )
    trace: str = option(
        "warning",
        "level of messages on stderr: debug, info, warning (default), error",
        choices=("debug", "info", "warning", "error"),
        metavar="LEVEL",
    )
    trusting: bool = option(
        False,
        "ports may use each other's MAC, GID and IP addresses, for tests of spoofing; otherwise "
        "what is sent from another port's address is dropped",
    )
    no_sandbox: bool = option(
        False,
        "give nothing up when ready: system calls, files and network stay those of the user who "
        "started it, for debuggers",
    )

    @property
    def cards(self) -> tuple[cards.Card, ...]:
        """The cards that `card` names, in its order."""
        return cards.listed(self.card)

    @property
    def link_layer(self) -> LinkLayer:
        """The link layer of the ports; raises `ValueError` for a `link` that is none of `LINKS`."""
        if self.link not in LINKS:
            raise ValueError(f"--link {self.link} is no link layer")
        return LinkLayer(self.link)


DEFAULTS = ServerOptions()
"""The options of a server for which the command line sets none."""
