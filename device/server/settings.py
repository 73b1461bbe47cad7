"""The settings of one server: one object, which travels to its process as words.

The lab makes `ServerSettings`, `words` writes them as a command line of `python -m
bluebridge.device`, and `of_arguments` makes the same object of it there.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device import cards
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.server import option_table
from bluebridge.device.server.options import (
    BRIDGE_DEFAULTS,
    DEFAULTS,
    MESSAGES,
    MOST_FACTOR,
    BridgeOptions,
    ServerOptions,
    between_hosts,
)

MAC_PREFIX = bytes.fromhex("0002c9bb00")
MAX_NETWORK = 15
"""Numbers of networks are part of the GUIDs of switches, which have little room for them."""
_FUNCTION = "name=N,socket=PATH"


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function to serve: the name of its guest, and the path of its socket."""

    name: str
    socket: Path

    def __str__(self) -> str:
        return f"name={self.name},socket={self.socket}"


@dataclass(frozen=True, slots=True)
class HcaSpec:
    """An HCA to serve: its name in the log, its socket, its MAC address, its link layer, its card.

    Its ports are on the networks of number `network`: ports of the same number are connected if
    their adapters have the same network number. A NIC is named likewise.
    """

    name: str
    socket: Path
    mac: bytes
    link: LinkLayer = LinkLayer.ETHERNET
    network: int = 0
    card: str = cards.DEFAULT


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The functions that one server serves, its log, and the socket for its orders.

    `bridges` are none or two sides of a bridge, `engines` DMA engines; `nics` are virtio NICs on
    the network of the first ports. Without `log` nothing is recorded, without `control` no orders
    are taken.
    """

    hcas: tuple[HcaSpec, ...] = ()
    nics: tuple[HcaSpec, ...] = ()
    bridges: tuple[FunctionSpec, ...] = ()
    engines: tuple[FunctionSpec, ...] = ()
    log: Path | None = None
    control: Path | None = None
    options: ServerOptions = DEFAULTS
    bridge: BridgeOptions = BRIDGE_DEFAULTS

    @property
    def features(self) -> Features:
        """What the cards have; raises `ValueError` on nonsense."""
        return Features(
            ports=self.options.ports,
            blueflame=self.options.blueflame == "on",
            blueflame_register=self.options.blueflame_size,
            pro=self.options.pro,
            large_cqes=self.options.large_cqes,
        )

    @property
    def network(self) -> NetworkSettings:
        """What the networks are; a peer that is not of this process may be slow to answer."""
        far = bool(self.nics) or between_hosts(self.options.wire)
        return NetworkSettings(
            packets=self.options.wire != MESSAGES,
            ack_timeout_factor=self.options.ack_timeout_factor or (MOST_FACTOR if far else 1.0),
            managed=self.options.sm == "builtin",
            trusting=self.options.trusting,
            fast_rnr=self.options.rnr == "fast",
        )

    @property
    def sockets(self) -> list[Path]:
        """The socket of each function and NIC."""
        adapters, others = (*self.hcas, *self.nics), (*self.bridges, *self.engines)
        return [*(each.socket for each in adapters), *(each.socket for each in others)]

    def check(self) -> None:
        """Raise `ValueError` for a NIC without a network, HCAs with one address, or wrong options.

        Wrong are those that the card of an HCA does not have.
        """
        asked = option_table.changed(self.options)
        kinds = [cards.CARDS[spec.card] for spec in self.hcas]
        if reason := cards.objection(kinds, asked):
            raise ValueError(f"{reason}: leave it out")
        foreign = [spec for spec in self.hcas if spec.link is not LinkLayer.ETHERNET]
        if any("link" in cards.CARDS[spec.card].alone for spec in foreign):
            raise ValueError("--hca: link=infiniband is none of this card: leave it out")
        if self.nics and LinkLayer.ETHERNET not in {spec.link for spec in self.hcas}:
            raise ValueError("--nic needs an HCA on Ethernet: add --hca")
        found: dict[tuple[LinkLayer, int, bytes], str] = {}
        for spec in () if self.options.trusting else self.hcas:
            other = found.setdefault((spec.link, spec.network, spec.mac), spec.name)
            if other != spec.name:
                raise ValueError(
                    f"HCAs {other} and {spec.name} both have MAC address {spec.mac.hex(':')} and "
                    "its GUIDs: give one of them another mac= or net=, or write --trusting"
                )

    def words(self) -> list[str]:
        """Write the settings as words of a command line, from which `of_arguments` has them."""
        found = [word for hca in self.hcas for word in ("--hca", self._hca_text(hca))]
        for nic in self.nics:
            found += ["--nic", f"name={nic.name},socket={nic.socket},mac={nic.mac.hex(':')}"]
        for option, specs in (("--ntb", self.bridges), ("--dma", self.engines)):
            found += [word for spec in specs for word in (option, str(spec))]
        for option, path in (("--log", self.log), ("--control", self.control)):
            found += [] if path is None else [option, str(path)]
        return found + option_table.words(self.options) + option_table.words(self.bridge)

    def _hca_text(self, hca: HcaSpec) -> str:
        text = f"name={hca.name},socket={hca.socket},mac={hca.mac.hex(':')}"
        text += "" if hca.link == self.options.link else f",link={hca.link}"
        text += "" if hca.card == self.options.cards[0].name else f",card={hca.card}"
        return f"{text},net={hca.network}" if hca.network else text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a server."""
    parser.add_argument(
        "--hca",
        action="append",
        default=[],
        metavar=f"{_FUNCTION}[,mac=MAC][,link=LINK][,net=N][,card=CARD]",
        help="an HCA; without link= its ports speak what --link says, without card= it is the "
        "first of --card; HCAs whose net= (default 0) differ are not connected",
    )
    parser.add_argument(
        "--nic",
        action="append",
        default=[],
        metavar=f"{_FUNCTION},mac=MAC",
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
    group = parser.add_argument_group("bridge")
    for option, what in (("--ntb", "a side of the bridge; give two"), ("--dma", "a DMA engine")):
        group.add_argument(option, action="append", default=[], metavar=_FUNCTION, help=what)
    option_table.add_arguments(BridgeOptions, group)


def of_arguments(arguments: argparse.Namespace) -> ServerSettings:
    """Make the settings of a parsed command line; raises `ValueError` with one line."""
    options = option_table.of_arguments(ServerOptions, arguments)
    link, card = options.link_layer, options.cards[0].name
    return ServerSettings(
        tuple(parse_hca(text, number, link, card) for number, text in enumerate(arguments.hca)),
        tuple(parse_nic(text) for text in arguments.nic),
        tuple(parse_function("--ntb", text) for text in arguments.ntb),
        tuple(parse_function("--dma", text) for text in arguments.dma),
        None if arguments.no_log else arguments.log,
        arguments.control,
        options,
        option_table.of_arguments(BridgeOptions, arguments),
    )


def parse_hca(
    text: str, number: int = 0, link: LinkLayer = LinkLayer.ETHERNET, card: str = cards.DEFAULT
) -> HcaSpec:
    """Parse `name=a,socket=PATH[,mac=MAC][,link=LINK][,net=N][,card=CARD]`; raises `ValueError`."""
    values = option_table.pairs("--hca", text, "name", "socket", "mac", "link", "net", "card")
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
    found = values.get("card", card)
    if found not in cards.CARDS:
        raise ValueError(f"--hca {text}: card= is {' or '.join(cards.CARDS)}")
    return HcaSpec(
        values["name"], Path(values["socket"]), mac, LinkLayer(kind), int(network), found
    )


def parse_nic(text: str) -> HcaSpec:
    """Parse `name=b,socket=PATH,mac=52:54:00:…`; raises `ValueError` with one line."""
    values = option_table.pairs("--nic", text, "name", "socket", "mac", "link", "net")
    if values.keys() != {"name", "socket", "mac"}:
        raise ValueError(f"--nic {text}: write name=, socket= and mac=")
    return parse_hca(text)


def parse_function(option: str, text: str) -> FunctionSpec:
    """Parse `name=a,socket=PATH`; raises `ValueError` with one line."""
    values = option_table.pairs(option, text, "name", "socket")
    return FunctionSpec(values["name"], Path(values["socket"]))
