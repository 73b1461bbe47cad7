"""The configuration of a lab: guests, devices, drivers, log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bluebridge.device.cards import Card
from bluebridge.device.server.options import (
    DEFAULTS,
    BridgeOptions,
    ServerOptions,
    between_hosts,
    hosts,
)
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.software import AS_USUAL, GuestSoftware
from bluebridge.host_tools.machine.qemu_arguments import GuestSize

NAMES = ("a", "b")
NTB_ADDRESSES = ("10.9.1.1/24", "10.9.1.2/24")
"""The addresses of ntb_netdev's network devices, one for each guest of a pair."""
MAX_GUESTS = 8
"""The largest number of guests on one network of a device server."""
_HOSTS_OF_A_SITE = 10
"""Labs on one wire between hosts have 10.9.0.1 and on, 10.9.0.11 and on, and so on."""
_FIRST_MAC = 0x0002C9BB0001
_FIRST_NIC_MAC = 0x525400000000
_MACS_OF_A_SITE = 0x40000
_MACS_OF_A_PAIR = 0x400
"""Ports and nodes of an HCA take steps of 0x100 from its MAC (`HcaConfig.port_guid`)."""
ADDRESSES = ("10.9.0.1/24", "10.9.0.2/24")
"""The addresses of a pair's network devices, which has a network of its own (`address`)."""
NTRDMA_ADDRESSES = ("10.9.4.1/24", "10.9.4.2/24")
"""The addresses of RTRS over NTRDMA, in a network besides those of the HCAs' ports."""
KERNEL, PYTHON = SIDES = ("kernel", "python")
"""The speakers of RTRS in a guest: the kernel's modules, or the guest's Python."""
MAX_HCAS = 2
"""The largest number of HCAs that a guest can have."""
LIMITS = {"cpus": (1, 64), "memory_mib": (256, 65536), "hugepages": (0, 16384)}
"""The smallest and the largest value of each field of `LabConfig` that sets a guest's size."""


@dataclass(frozen=True)
class LabConfig:
    """The settings in which one lab differs from the next."""

    log: Path | None = None
    """Folder for bus log and transcripts; None makes a new one that is kept for a while."""
    sockets: Path | None = None
    """Folder for the HCAs' sockets; None puts them into the private run folder."""
    bus_log: bool = True
    cpus: int = 2
    memory_mib: int = 1024
    hugepages: int = 64
    vfio: bool = True
    """Bind the HCAs to vfio-pci; without it no driver has them."""
    kernel: bool = False
    """Give the HCAs to the kernel's mlx4 drivers instead, each with its `address`."""
    options: ServerOptions = DEFAULTS
    """The options of the HCAs and of the bus log."""
    server_words: tuple[str, ...] = ()
    """More arguments of `python -m bluebridge.device`, passed on as they are."""
    names: tuple[str, ...] = NAMES
    """The names of the guests, two unless more are on the network; a bridge joins two."""
    number: int = 1
    """The number of the pair on this machine, from 1, from which its HCAs' MAC addresses follow."""
    site: int = 0
    """The number of this lab among those on one wire between hosts (`of_wire`)."""
    cold: bool = False
    """Boot from power-on with the devices in place, instead of restoring a snapshot."""
    hca: bool = True
    """Whether each guest has an HCA."""
    hcas: int = 1
    """The number of HCAs of each guest; HCAs with the same index are connected to each other."""
    rxe: str = ""
    """The letters of guests that have a virtio NIC with Soft-RoCE in place of HCAs."""
    rtrs: tuple[str, str] | None = None
    """The side of `SIDES` that speaks RTRS in each guest; None prepares no guest for RTRS.

    It overrides `vfio` and `kernel`, and every port of the HCAs gets an address
    (`lab/guest_drivers.py`).
    """
    hosts: str = ""
    """The letters of sides that programs of this machine play: they have no guest."""
    bridge: BridgeOptions | None = None
    """The options of the bridge, with a DMA engine in each guest; None for no bridge."""

    software: GuestSoftware = AS_USUAL
    """The kernel of the guests, and what lies over their root."""
    stop_on: str = ""
    """The condition (`host_tools.analyzer.conditions`) at which the bus log ends; empty: never."""

    @property
    def serves(self) -> bool:
        """Whether there is any device, and so a device server."""
        return self.hca or self.bridge is not None

    @property
    def window_alias(self) -> bool:
        """Whether the bridge's second window is the peer's memory itself.

        Such a pair can only start from the snapshot, and its guests cannot be restarted alone.
        """
        return self.bridge is not None and self.bridge.window_alias

    def of_wire(self) -> LabConfig:
        """Return the configuration with the lab's number among those on its wire.

        Names of hosts are looked up. Raises `UsageError` for a wire that leads nowhere.
        """
        if not between_hosts(self.options.wire):
            return self
        try:
            return replace(self, site=hosts(self.options.wire, self.options.underlay).site)
        except ValueError as error:
            raise UsageError(str(error), "`bluebridge up --help` has the form") from None

    def hca_mac(self, index: int) -> bytes:
        """Return the MAC address of the HCA with that index in the device server, from 0."""
        number = _FIRST_MAC + self.site * _MACS_OF_A_SITE
        return (number + (self.number - 1) * _MACS_OF_A_PAIR + index).to_bytes(6, "big")

    def nic_mac(self, index: int) -> bytes:
        """Return the MAC address of the virtio NIC with that index in the device server, from 0."""
        number = _FIRST_NIC_MAC + (self.site << 16 | self.number << 8 | index)
        return number.to_bytes(6, "big")

    def host_number(self, name: str) -> int:
        """Return the last part of the addresses of guest `name`, unique among all joined labs."""
        return _HOSTS_OF_A_SITE * self.site + self.names.index(name) + 1

    def address(self, name: str) -> str:
        """Return the address of the kernel's network device in guest `name`, with its prefix."""
        return f"10.9.0.{self.host_number(name)}/24"

    def is_host(self, name: str) -> bool:
        """Whether side `name` has no guest: programs of this machine play its part."""
        return name[0] in self.hosts

    def check_hosts(self) -> None:
        """Raise `UsageError` when `hosts` names a side that is not there."""
        known = [name[0] for name in self.names]
        for letter in self.hosts:
            if letter not in known:
                raise UsageError(f"--host: there is no side {letter}", f"name {' or '.join(known)}")

    @property
    def guests(self) -> tuple[str, ...]:
        """The names of the sides that have a guest."""
        return tuple(name for name in self.names if not self.is_host(name))

    def called(self, name: str) -> str:
        """Return the side in words for people: `guest a` or `host b`."""
        return f"{'host' if self.is_host(name) else 'guest'} {name}"

    def has_nic(self, name: str) -> bool:
        """Whether guest `name` has a virtio NIC with Soft-RoCE (rdma_rxe) in place of HCAs."""
        return name[0] in self.rxe

    def card(self, name: str) -> Card:
        """Return the card of the HCAs of guest `name`: the last one named is that of all others."""
        cards = self.options.cards
        return cards[min(self.names.index(name), len(cards) - 1)]

    def has_hca(self, name: str) -> bool:
        """Whether guest `name` has an HCA."""
        return self.hca and not self.has_nic(name)

    @property
    def cards_of_guests(self) -> set[str]:
        """The names of the cards that guests have."""
        return {self.card(name).name for name in self.guests if self.has_hca(name)}

    def kernel_drives(self, name: str) -> bool:
        """Whether the kernel's drivers get the devices of guest `name`."""
        if self.rtrs is not None:
            return self.rtrs[self.names.index(name)] == "kernel"
        return self.kernel

    def binds(self, name: str) -> bool:
        """Whether the devices of guest `name` are bound to vfio-pci."""
        return (self.vfio or self.rtrs is not None) and not self.kernel_drives(name)

    @property
    def driver(self) -> str:
        """Who drives the guests' devices, as `up --driver` says it."""
        if self.rtrs is not None:
            return "kernel" if KERNEL in self.rtrs else "guest"
        if self.kernel:
            return "kernel"
        return "guest" if self.vfio and self.serves else "none"

    @property
    def size(self) -> GuestSize:
        """The size of the guests."""
        return GuestSize(self.cpus, self.memory_mib, self.hugepages)
