"""Options of the device server for its HCAs, each declared in one place.

A field of `ServerOptions` is an option of `python -m bluebridge.device`, see
`bluebridge.device.server.option_table`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bluebridge.device.buslog.packing import CAPTURE, WINDOW_CAPTURE
from bluebridge.device.buslog.segments import TOTAL_BYTES
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.layout.net.vxlan import MAX_VNI
from bluebridge.device.mlx4.settings.config import BLUEFLAME_REGISTERS, MAX_PORTS, PLAIN
from bluebridge.device.server.option_table import option
from bluebridge.device.server.wire_peers import MESSAGES, own_address, wire


def byte_count(text: str) -> int:
    """Parse a number of bytes, 0 or more; raises `argparse.ArgumentTypeError`."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes, 0 or more")
    return int(text)


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LEAST_LOG = 1 << 20
"""The smallest permitted limit of a bus log, in bytes."""


def log_limit(text: str) -> int:
    """Parse a size, `4GiB` or bytes, at least `LEAST_LOG`; raises `argparse.ArgumentTypeError`."""
    unit = _UNITS.get(text[-3:], 1)
    size = byte_count(text if unit == 1 else text[:-3]) * unit
    if size < LEAST_LOG:
        raise argparse.ArgumentTypeError(f"{text} is less than 1MiB")
    return size


DEFAULT_VNI = 77


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

    link: str = option(
        LinkLayer.ETHERNET.value,
        "what the ports speak (default ethernet)",
        choices=tuple(link.value for link in LinkLayer),
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
    large_cqes: bool = option(False, "offer completion entries of 64 bytes")
    capture: int = option(
        CAPTURE,
        f"what the log keeps of each transfer (default {CAPTURE}), and of each message on the wire "
        f"or access through a bridge's window ({WINDOW_CAPTURE}) if that is more than it keeps "
        "anyway",
        metavar="BYTES",
        read=byte_count,
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
        "ports may use each other's MAC addresses and GIDs, for tests of spoofing; otherwise what "
        "is sent from another port's address is dropped",
    )
    no_sandbox: bool = option(
        False,
        "give nothing up when ready: system calls, files and network stay those of the user who "
        "started it, for debuggers",
    )


DEFAULTS = ServerOptions()
"""The options of a server for which the command line sets none."""
