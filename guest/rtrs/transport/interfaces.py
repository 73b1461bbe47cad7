"""The addresses that RTRS may use: ports of devices, each with its connection manager."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bluebridge.guest.bus.vfio import VfioBus, find_device
from bluebridge.guest.cm import CmEvent, ConnectionManager, open_cm
from bluebridge.guest.cm.event_queue import CmEvents
from bluebridge.guest.netif import NetInterface
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionChannel,
    Device,
    ProtectionDomain,
    VerbsError,
)

VECTORS = 16
_WORD = re.compile(r"(?:(?P<function>[0-9a-f:.]+?)(?:/(?P<port>\d))?=)?(?P<address>[\d./]+)$")


class AddressError(ValueError):
    """An interface or an address that cannot be used; one line with the mend."""


@dataclass(frozen=True, slots=True)
class InterfaceWords:
    """`FUNCTION[/PORT]=ADDRESS[/BITS]`: a PCI address, a port from 1, an IPv4 address."""

    function: str
    port: int
    address: str
    prefix: int


def parse_interface(word: str) -> InterfaceWords:
    """One `--interface`; the function may be left out: the first HCA on vfio-pci."""
    match = _WORD.match(word)
    if match is None:
        form = "FUNCTION[/PORT]=ADDRESS/BITS such as 00:03.0/1=10.9.0.1/24"
        raise AddressError(f"{word!r} is no {form}")
    try:
        address = ipaddress.IPv4Interface(match["address"])
    except ValueError as error:
        raise AddressError(f"{match['address']} is no IPv4 address: {error}") from error
    prefix = address.network.prefixlen if "/" in match["address"] else 24
    function = match["function"] or find_device()
    if function.count(":") == 1:
        function = f"0000:{function}"
    return InterfaceWords(function, int(match["port"] or 1), str(address.ip), prefix)


class Interface:
    """An address on a port, and what connections there are made of.

    `hca` and `port` are as in names of files (mlx4_0, 1). All completion queues share `channel`.
    """

    def __init__(
        self, device: Device, hca: str, port: int, netif: NetInterface, manager: ConnectionManager
    ) -> None:
        self.device = device
        self.hca = hca
        self.port = port
        self.network = netif.network.network
        self.address = str(netif.network.ip)
        self.manager = manager
        self.events: CmEvents[CmEvent] = CmEvents()
        self.pd: ProtectionDomain = device.alloc_pd()
        self.channel: CompletionChannel = device.create_comp_channel()
        self._dma_mr = self.pd.get_dma_mr(AccessFlags.LOCAL_WRITE)
        self.lkey = self._dma_mr.lkey

    def close(self) -> None:
        """Give everything but the device back; connections must be gone."""
        self._dma_mr.close()
        self.channel.close()
        self.pd.close()
        self.events.close()


class Interfaces:
    """All interfaces of a program."""

    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.all = interfaces

    def towards(self, source: str, destination: str) -> Interface:
        """The interface with the address `source`, or in the network of `destination`.

        Raises `AddressError`.
        """
        if source:
            for interface in self.all:
                if interface.address == source:
                    return interface
            raise AddressError(f"{source} is no address of this machine, but {self._addresses()}")
        try:
            target = ipaddress.IPv4Address(destination)
        except ValueError as error:
            raise AddressError(f"{destination!r} is no IPv4 address") from error
        for interface in self.all:
            if target in interface.network:
                return interface
        raise AddressError(f"{destination} is no neighbour of {self._addresses()}")

    def _addresses(self) -> str:
        return ", ".join(interface.address for interface in self.all)


@contextmanager
def open_interfaces(words: Sequence[InterfaceWords]) -> Iterator[Interfaces]:
    """Take the functions over, each once, and bring the addresses up.

    Raises `DeviceError`, `OSError`, `MemoryError`, `AddressError`.
    """
    with contextlib.ExitStack() as stack:
        devices: dict[str, tuple[str, Device]] = {}
        opened = []
        for word in words:
            if word.function not in devices:
                device = stack.enter_context(open_device(VfioBus(word.function), vectors=VECTORS))
                devices[word.function] = f"mlx4_{len(devices)}", device
            name, device = devices[word.function]
            opened.append(open_interface(stack, device, name, word))
        yield Interfaces(opened)


def open_interface(
    stack: contextlib.ExitStack, device: Device, hca: str, word: InterfaceWords
) -> Interface:
    """One address on a port of a device that is open; `stack` closes it."""
    try:
        device = device.port(word.port)
    except VerbsError as error:
        raise AddressError(f"{hca}: {error}") from error
    netif = stack.enter_context(NetInterface(device, word.address, word.prefix))
    manager = open_cm(device, word.address, netif)
    stack.callback(manager.close)
    interface = Interface(device, hca, word.port, netif, manager)
    stack.callback(interface.close)
    return interface
