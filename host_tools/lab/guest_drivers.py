"""Loads in the guests of a pair: drivers, addresses, what RTRS sessions need."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bluebridge.device.layout.ntb.models import BY_NAME
from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.hosts.host import Host
from bluebridge.host_tools.lab import root_ports
from bluebridge.host_tools.lab.artefacts import unpack
from bluebridge.host_tools.lab.config import NTB_ADDRESSES, LabConfig
from bluebridge.host_tools.machine.vm import Vm

_SUBNETS_OF_AN_HCA = 2
"""One for each port that it may have."""

RAM_DISKS = 2
RAM_DISK_MIB = 256
"""The size in MiB of /dev/ram0 and each other RAM disk, which takes memory as it is written to."""
_RTRS_SECONDS = 120.0
_BACK_ENDS = f"modprobe brd rd_nr={RAM_DISKS} rd_size={RAM_DISK_MIB << 10}"
_KERNEL = f"{_BACK_ENDS} && modprobe rnbd-client && modprobe rnbd-server"
_PYTHON = f"{_BACK_ENDS} && modprobe nbd"
_UP = """
for net in /sys/bus/pci/devices/$1/net/*; do
    [ $(($(cat $net/dev_port) + 1)) = $2 ] || continue
    ip addr replace $3 dev ${net##*/} && ip link set ${net##*/} up || exit 1
    for try in $(seq 300); do
        [ "$(cat $net/carrier)" = 1 ] &&
            grep -q ACTIVE /sys/bus/pci/devices/$1/infiniband/*/ports/$2/state && exit 0
        sleep 0.1
    done
done
echo "port $2 of $1 does not come up" >&2
exit 1
"""
"""Gives a port of a PCI function an address; returns when its RDMA device may use it."""

_SECONDS = 120.0
_LOADS = 3
_TRANSPORT = "modprobe ntb_transport use_dma=1 max_mw_size=0x100000 && modprobe ntb_netdev"
# ntb_msi_setup_mws sets a window to the address that interrupt 0 of the bridge is sent to, which
# has its CPU in bits 12 to 19, rounded to 4096 bytes; the Switchtec driver refuses an address that
# is not a multiple of the window's size (switchtec_ntb_mw_set_trans). Only that of CPU 0 is one.
_ON_FIRST_CPU = """
default=/proc/irq/default_smp_affinity
before=$(cat $default)
echo 1 > $default
modprobe MODULE
status=$?
echo $before > $default
exit $status
"""
_LINK = """
for try in $(seq 200); do
    for net in /sys/class/net/*; do
        [ "$(ethtool -i ${net##*/} 2>/dev/null | head -n 1)" = "driver: ntb_netdev" ] || continue
        ip addr replace ADDRESS dev ${net##*/} && ip link set ${net##*/} up || exit 1
        [ "$(cat $net/carrier)" = 1 ] && exit 0
    done
    sleep 0.1
done
exit 1
"""

_KERNEL_SECONDS = 180.0

RunTogether = Callable[..., None]
"""Runs actions, `Callable[[], None]` each, side by side; raises the first failure."""


@dataclass(frozen=True)
class PortAddress:
    """The IP address `ip` of a port in a guest: HCA `hca`, from 0, and port `port`, from 1."""

    hca: int
    port: int
    ip: str

    @property
    def bits(self) -> str:
        """The address with the length of its prefix, such as `10.9.0.1/24`."""
        return f"{self.ip}/24"


def port_addresses(config: LabConfig, name: str) -> list[PortAddress]:
    """Return the addresses of the HCA ports of guest `name`, none without HCAs.

    The first HCA's ports are in 10.9.0.0/24 and 10.9.1.0/24, those of the next HCA in 10.9.2.0/24
    and 10.9.3.0/24.
    """
    if not config.has_hca(name):
        return []
    host = config.host_number(name)
    return [
        PortAddress(hca, port, f"10.9.{hca * _SUBNETS_OF_AN_HCA + port - 1}.{host}")
        for hca in range(config.hcas)
        for port in range(1, config.options.ports + 1)
    ]


def port_name(guest: str, address: PortAddress) -> str:
    """Return a port's name in `bluebridge link` and the control socket: `a/1`, `a/2`, `a.1/1`."""
    return f"{guest}.{address.hca}/{address.port}" if address.hca else f"{guest}/{address.port}"


def prepare(machine: Vm, config: LabConfig) -> None:
    """Load the modules for RTRS; where the kernel drives the HCAs, give every port its address.

    Raises `LabError`.
    """
    if not config.kernel_drives(machine.name):
        machine.run(_PYTHON, timeout=_RTRS_SECONDS)
        return
    for address in port_addresses(config, machine.name):
        words = [function(machine, address), str(address.port), address.bits]
        machine.run(["sh", "-c", _UP, "up", *words], timeout=_RTRS_SECONDS)
    machine.run(_KERNEL, timeout=_RTRS_SECONDS)


def function(side: Vm | Host, address: PortAddress) -> str:
    """Return the PCI address, on its side, of the HCA that a port belongs to."""
    port = root_ports.HCAS[address.hca]
    if isinstance(side, Host):
        return root_ports.address(port)
    found = side.function(port)
    assert found is not None, f"guest {side.name} has no HCA {address.hca}"
    return found["address"]


def probe(machine: Vm, model: str) -> None:
    """Load the drivers of engine and bridge; returns when the bridge is registered.

    Their modules load whether or not their probes succeed, and a client that finds no bridge says
    "No such device" (ntb_transport_register_client_dev). Raises `LabError` with what the kernel
    said.
    """
    driver = BY_NAME[model].kernel_driver
    machine.run(
        f"modprobe ioatdma || exit; {_ON_FIRST_CPU.replace('MODULE', driver)}", timeout=_SECONDS
    )
    if machine.run("ls /sys/bus/ntb/devices | grep -q .", check=False).status:
        raise LabError(
            f"guest {machine.name}: {driver} has registered no bridge",
            "read dmesg in both guests",
            machine.run("dmesg | tail -n 30", check=False).text,
        )


def settle(machine: Vm) -> None:
    """Wait until the driver has digested its peer's probe; to be called when both have probed.

    A Switchtec driver that starts tells its peer to take the link down, which takes that 0.1 s. A
    client that enables the link meanwhile loses it again, and ntb_transport's peer never notices
    (check_link_status_work, ntb_transport_link_work).
    """
    works = "grep -qs check_link_status_work /proc/[0-9]*/stack"
    machine.run(
        f"for look in 1 2 3 4 5; do while {works}; do sleep 0.1; done; sleep 0.1; done",
        timeout=_SECONDS,
    )


def load(machine: Vm, address: str) -> None:
    """Load ntb_transport and ntb_netdev over a settled driver; give the network device `address`.

    Returns when the device has a carrier, for which the peer must do the same. A transport that
    enables the link first hears that it is down, and the work for that, if it runs only after the
    peer's "up", cancels the work for "up": then it waits for ever (ntb_transport_link_cleanup). It
    is loaded again. Raises `LabError`.
    """
    for _ in range(_LOADS):
        machine.run(_TRANSPORT, timeout=_SECONDS)
        done = machine.run(_LINK.replace("ADDRESS", address), timeout=_SECONDS, check=False)
        if not done.status:
            return
        machine.run("rmmod ntb_netdev && rmmod ntb_transport", timeout=_SECONDS)
    raise LabError(
        f"guest {machine.name}: the NTB link does not come up",
        "read dmesg in both guests",
        machine.run("dmesg | tail -n 30", check=False).text,
    )


def _install(machine: Vm, name: str, folder: Path) -> None:
    """Put the modules of `folder` into a folder `name` among the guest's own; mount debugfs.

    The image of the guest is without them. Raises `LabError`.
    """
    archive = f"/tmp/{name}.tar"
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as modules:
            for path in sorted(folder.glob("*.ko")):
                modules.add(path, path.name)
        file.flush()
        machine.agent.put(Path(file.name), archive)
    machine.run(
        f"T=/lib/modules/$(uname -r)/{name}; mkdir -p $T && tar -x -C $T -f {archive} && "
        f"rm {archive} && depmod -a && "
        "{ grep -q /sys/kernel/debug /proc/mounts || mount -t debugfs none /sys/kernel/debug; }",
        timeout=_SECONDS,
    )


@dataclass(frozen=True)
class GuestDrivers:
    """Loads the kernel drivers that a `LabConfig` asks for; every method raises `LabError`."""

    config: LabConfig
    modules: Mapping[str, Path]
    """Folders of modules that the guests get, by the name of the set."""
    archives: Mapping[str, Path]
    """Archives of modules that guests with some cards get, by the name of the card."""
    together: RunTogether
    progress: Progress
    detail: Progress

    def load(self, machine: Vm) -> None:
        """Load the kernel's driver if it is to have a guest's HCAs, or Soft-RoCE for a NIC instead.

        Sets of modules are copied to the guest.
        """
        address, card = self.config.address(machine.name), self.config.card(machine.name)
        if card.name in self.archives and self.config.has_hca(machine.name):
            unpack(machine, [self.archives[card.name]])
            machine.run("depmod -a", timeout=_SECONDS)
            self.detail(f"guest {machine.name}: has the modules of the {card.title}")
        if self.config.has_nic(machine.name):
            self.progress(f"guest {machine.name}: loading Soft-RoCE")
            machine.run(["bluebridge-rxe", address], timeout=_KERNEL_SECONDS)
            self.detail(f"guest {machine.name}: rxe0 has the NIC, address {address}")
        elif self.config.kernel_drives(machine.name) and self.config.hca:
            self.progress(f"guest {machine.name}: loading the kernel's drivers")
            machine.run([card.loader, address], timeout=_KERNEL_SECONDS)
            self.detail(f"guest {machine.name}: {card.driver} has its device, address {address}")
        for name, folder in self.modules.items():
            _install(machine, name, folder)
            self.detail(f"guest {machine.name}: has the modules of {folder.name}")
        if self.config.rtrs is not None:
            self.progress(f"guest {machine.name}: making RTRS ready")
            prepare(machine, self.config)
            self.detail(f"guest {machine.name}: ready for RTRS")

    def probe_bridges(self, machines: Sequence[Vm]) -> None:
        """Load the drivers of bridge and DMA engine in `machines`; clients can use bridges then.

        The pair must have a bridge.
        """
        assert self.config.bridge is not None, "the pair has no bridge"
        model = self.config.bridge.ntb_model
        self.together(*(partial(probe, each, model) for each in machines))
        self.together(*(partial(settle, each) for each in machines))

    def load_bridges(self, machines: Sequence[Vm]) -> None:
        """Load the drivers of bridge, transport and network device if the kernel drives the bridge.

        It returns when the NTB link is up.
        """
        if not (self.config.bridge and self.config.kernel):
            return
        self.progress("loading the NTB drivers")
        self.probe_bridges(machines)
        addresses = dict(zip(self.config.names, NTB_ADDRESSES, strict=True))
        self.together(*(partial(load, each, addresses[each.name]) for each in machines))
        for machine in machines:
            self.detail(f"guest {machine.name}: the NTB link is up")
            machine.touched = False
