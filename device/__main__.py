"""`python -m bluebridge.device`: the process that is the hardware.

    python -m bluebridge.device --hca name=a,socket=a.sock --hca name=b,socket=b.sock --log DIR

Prints `ready` when all sockets listen; ends on SIGTERM and SIGINT.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device.buslog.writer import EventLog, FileLog
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.pci import collector
from bluebridge.device.pyvfio_user import LibraryError
from bluebridge.device.server import option_table, sandbox
from bluebridge.device.server.bridges import BridgeSpec, add_arguments, bridge_spec
from bluebridge.device.server.networks import HcaSpec, UnderlaySpec
from bluebridge.device.server.options import (
    MESSAGES,
    MOST_FACTOR,
    ServerOptions,
    between_hosts,
    hosts,
)
from bluebridge.device.server.process import Server

log = logging.getLogger(__name__)

MAC_PREFIX = bytes.fromhex("0002c9bb00")
MAX_NETWORK = 15
"""Numbers of networks are part of the GUIDs of switches, which have little room for them."""


def parse_hca(text: str, number: int = 0, link: LinkLayer = LinkLayer.ETHERNET) -> HcaSpec:
    """Parse `name=a,socket=PATH[,mac=00:02:c9:…][,link=…][,net=N]`; raises `ValueError`."""
    values = option_table.pairs("--hca", text, "name", "socket", "mac", "link", "net")
    mac = MAC_PREFIX + bytes((number + 1,))
    if "mac" in values:
        mac = bytes.fromhex(values["mac"].replace(":", ""))
        if len(mac) != 6 or mac[0] & 1:
            raise ValueError(f"--hca {text}: {values['mac']} is no unicast MAC address")
    kind = values.get("link", link)
    if kind not in tuple(LinkLayer):
        raise ValueError(f"--hca {text}: link= is {' or '.join(LinkLayer)}")
    network = values.get("net", "0")
    if not network.isascii() or not network.isdecimal() or int(network) > MAX_NETWORK:
        raise ValueError(f"--hca {text}: net= is a number from 0 to {MAX_NETWORK}")
    return HcaSpec(
        values["name"], Path(values["socket"]), mac, LinkLayer(kind), network=int(network)
    )


def parse_nic(text: str) -> HcaSpec:
    """Parse `name=b,socket=PATH,mac=52:54:00:…`; raises `ValueError` with one line."""
    values = option_table.pairs("--nic", text, "name", "socket", "mac", "link", "net")
    if values.keys() != {"name", "socket", "mac"}:
        raise ValueError(f"--nic {text}: write name=, socket= and mac=")
    return parse_hca(text)


def _check_addresses(specs: list[HcaSpec]) -> None:
    """Raise `ValueError` for two HCAs of one network with one MAC address, or GUID made of it."""
    found: dict[tuple[LinkLayer, int, bytes], str] = {}
    for spec in specs:
        other = found.setdefault((spec.link, spec.network, spec.mac), spec.name)
        if other != spec.name:
            raise ValueError(
                f"HCAs {other} and {spec.name} both have MAC address {spec.mac.hex(':')} and its "
                "GUIDs: give one of them another mac= or net=, or write --trusting"
            )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bluebridge.device", description="the emulated hardware"
    )
    parser.add_argument(
        "--hca",
        action="append",
        default=[],
        metavar="name=N,socket=PATH[,mac=MAC][,link=LINK][,net=N]",
        help="an HCA; without link= its ports speak what --link says; HCAs whose net= (default 0) "
        "differ are not connected",
    )
    parser.add_argument(
        "--nic",
        action="append",
        default=[],
        metavar="name=N,socket=PATH,mac=MAC",
        help="a virtio NIC on the network of the first ports, for QEMU's -netdev stream",
    )
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder of the bus log")
    parser.add_argument("--no-log", action="store_true", help="record nothing")
    parser.add_argument(
        "--control",
        type=Path,
        metavar="SOCKET",
        help="take commands there, see bluebridge.device.server.control",
    )
    option_table.add_arguments(ServerOptions, parser.add_argument_group("HCAs and log"))
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if not (arguments.hca or arguments.ntb or arguments.dma):
        parser.error("there is nothing to serve: give --hca, --ntb or --dma")
    return arguments


def features_of(chosen: ServerOptions, nics: Sequence[HcaSpec]) -> Features:
    """Return what the HCAs have; a peer that is not of this process may be slow to answer."""
    far = bool(nics) or between_hosts(chosen.wire)
    return Features(
        ports=chosen.ports,
        blueflame=chosen.blueflame == "on",
        blueflame_register=chosen.blueflame_size,
        pro=chosen.pro,
        large_cqes=chosen.large_cqes,
        subnet_manager=chosen.sm == "builtin",
        trusting=chosen.trusting,
        packets=chosen.wire != MESSAGES,
        ack_timeout_factor=chosen.ack_timeout_factor or (MOST_FACTOR if far else 1.0),
    )


def _underlay(chosen: ServerOptions) -> UnderlaySpec | None:
    if not between_hosts(chosen.wire):
        return None
    return UnderlaySpec(hosts(chosen.wire, chosen.underlay), chosen.vni)


def _contain(arguments: argparse.Namespace, specs: Sequence[HcaSpec], bridges: BridgeSpec) -> None:
    """Give up what a server that is ready does not need."""
    sockets = [each.socket for each in specs]
    sockets += [each.socket for each in (*bridges.bridges, *bridges.engines)]
    removable = {path.parent.resolve() for path in sockets}
    writable = [path for path in (arguments.log,) if path is not None and path.exists()]
    if arguments.control is not None:
        writable.append(arguments.control.parent)  # `profile stop` writes there
    for line in sandbox.enter(sorted(removable), [path.resolve() for path in writable]):
        log.warning("%s", line)


def main(argv: list[str] | None = None) -> int:
    """Run the server; the exit status."""
    arguments = _arguments(argv)
    chosen = option_table.of_arguments(ServerOptions, arguments)
    logging.basicConfig(
        level=chosen.trace.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        link = LinkLayer(chosen.link)
        specs = [parse_hca(text, number, link) for number, text in enumerate(arguments.hca)]
        nics = [parse_nic(text) for text in arguments.nic]
        if nics and LinkLayer.ETHERNET not in {spec.link for spec in specs}:
            raise ValueError("--nic needs an HCA on Ethernet: add --hca")
        if not chosen.trusting:
            _check_addresses(specs)
        events = EventLog()
        if arguments.log and not arguments.no_log:
            events = FileLog(arguments.log, capture=chosen.capture, total=chosen.log_limit)
        spec = bridge_spec(arguments)
        server = Server(
            specs,
            events,
            features_of(chosen, nics),
            arguments.control,
            spec if spec.bridges or spec.engines else None,
            _underlay(chosen),
            nics,
        )
    except (ValueError, OSError, LibraryError) as error:
        print(f"bluebridge device server: {error}", file=sys.stderr)
        return 2
    collector.start()
    try:
        if not chosen.no_sandbox:
            _contain(arguments, [*specs, *nics], spec)
        server.run()
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    status = main()
    # The sockets' closers may just have started a thread: where one begins while the interpreter
    # ends, Python 3.11 reads a thread state that is gone (_PyThreadState_SetCurrent).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
