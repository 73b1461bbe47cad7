"""The addresses that RTRS may use: ports of devices, each with its connection manager."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bluebridge.guest.bus.machine import find_hca, open_bus
from bluebridge.guest.cm import CmEvent, ConnectionManager
from bluebridge.guest.cm.interface import CmEvents
from bluebridge.guest.connections import open_connections
from bluebridge.guest.ntrdma.back_ends import BACK_END, BRIDGE_BACK_ENDS
from bluebridge.guest.providers import NTRDMA, open_device, open_ntrdma
from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionChannel,
    Device,
    ProtectionDomain,
    VerbsError,
)

VECTORS = 16
FORM = "[FUNCTION[/PORT]=|ntrdma[:BACK_END]=]ADDRESS/BITS"
_NTRDMA = re.compile(rf"{NTRDMA}(?::(?P<back_end>[^=]+))?=(?P<address>[\d./]+)$")
_HCA = re.compile(r"(?:(?P<function>[0-9a-f:.]+?)(?:/(?P<port>\d))?=)?(?P<address>[\d./]+)$")


class AddressError(ValueError):
    """An interface or an address cannot be used; the text is one line that tells the remedy."""


@dataclass(frozen=True, slots=True)
class InterfaceWords:
    """The words of one `--interface`: device, port (from 1), IPv4 address with prefix length.

    `function` is the PCI address of an HCA; empty for NTRDMA, which has a `back_end` instead.
    """

    function: str
    port: int
    address: str
    prefix: int
    back_end: str = ""

    @property
    def device(self) -> str:
        """The key that interfaces of the same device have in common."""
        return self.function or NTRDMA

    @property
    def network(self) -> ipaddress.IPv4Interface:
        """The network that the address is in."""
        return ipaddress.IPv4Interface(f"{self.address}/{self.prefix}")


def parse_interface(word: str) -> InterfaceWords:
    """Parse one `--interface`; without a function it is the first HCA on vfio-pci.

    Raises `AddressError`, `DeviceError`.
    """
    ntrdma = _NTRDMA.match(word)
    match = ntrdma or _HCA.match(word)
    if match is None:
        raise AddressError(f"{word!r} is no {FORM} such as 00:03.0/1=10.9.0.1/24")
    try:
        address = ipaddress.IPv4Interface(match["address"])
    except ValueError as error:
        raise AddressError(f"{match['address']} is no IPv4 address: {error}") from error
    prefix = address.network.prefixlen if "/" in match["address"] else 24
    if ntrdma:
        return InterfaceWords("", 1, str(address.ip), prefix, match["back_end"] or BACK_END)
    function = match["function"] or find_hca()
    if function.count(":") == 1:
        function = f"0000:{function}"
    return InterfaceWords(function, int(match["port"] or 1), str(address.ip), prefix)


class Interface:
    """An address on a port, and the objects that its connections are made of.

    `hca` and `port` are as in names of files (mlx4_0, 1). All completion queues share `channel`.
    """

    def __init__(
        self, device: Device, hca: str, word: InterfaceWords, manager: ConnectionManager
    ) -> None:
        self.device = device
        self.hca = hca
        self.port = word.port
        self.network = word.network.network
        self.address = word.address
        self.manager = manager
        self.events: CmEvents[CmEvent] = CmEvents()
        self.pd: ProtectionDomain = device.alloc_pd()
        self.channel: CompletionChannel = device.create_comp_channel()
        self._dma_mr = self.pd.get_dma_mr(AccessFlags.LOCAL_WRITE)
        self.lkey = self._dma_mr.lkey

    def close(self) -> None:
        """Free everything but the device; connections must be gone."""
        self._dma_mr.close()
        self.channel.close()
        self.pd.close()
        self.events.close()


class Interfaces:
    """The interfaces of a program."""

    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.all = interfaces

    @property
    def allocator(self) -> Device:
        """Return the device whose memory all devices can use.

        HCAs use any memory that a device can be given. NTRDMA has to know its memory.
        """
        devices = [interface.device for interface in self.all]
        return next((device for device in devices if device.ethernet_port is None), devices[0])

    def towards(self, source: str, destination: str) -> Interface:
        """Return the interface with address `source`, or in the network of `destination`.

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
def open_interfaces(words: Sequence[InterfaceWords], wait: bool) -> Iterator[Interfaces]:
    """Take the devices over, each once, and bring the addresses up.

    With `wait` it waits until the peers of NTRDMA devices are there. Raises `DeviceError`,
    `OSError`, `MemoryError`, `AddressError`.
    """
    _check_together(words)
    with contextlib.ExitStack() as stack:
        devices: dict[str, tuple[str, Device]] = {}
        opened = []
        for word in words:
            if word.device not in devices:
                device = stack.enter_context(_open(word, wait))
                name = f"mlx4_{len(devices)}" if word.function else device.name
                devices[word.device] = name, device
            name, device = devices[word.device]
            opened.append(open_interface(stack, device, name, word))
        yield Interfaces(opened)


def _check_together(words: Sequence[InterfaceWords]) -> None:
    """Raise `AddressError` for interfaces that one program cannot have together."""
    back_ends = [word.back_end for word in words if word.back_end]
    if len(back_ends) > 1:
        raise AddressError("a machine has one NTRDMA device, and that has one address")
    if back_ends and back_ends[0] not in BRIDGE_BACK_ENDS and len(words) > 1:
        raise AddressError("NTRDMA over TCP has memory of its own, which no HCA can use")


def _open(word: InterfaceWords, wait: bool) -> Device:
    if word.back_end:
        return open_ntrdma(word.back_end, wait)
    return open_device(open_bus(word.function), vectors=VECTORS)


def open_interface(
    stack: contextlib.ExitStack, device: Device, hca: str, word: InterfaceWords
) -> Interface:
    """Open one address on a port of an open device; `stack` closes it."""
    try:
        device = device.port(word.port)
    except VerbsError as error:
        raise AddressError(f"{hca}: {error}") from error
    manager = open_connections(device, word.address, stack, word.prefix)
    interface = Interface(device, hca, word, manager)
    stack.callback(interface.close)
    return interface
