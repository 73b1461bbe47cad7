"""The preparation of a guest with `rtrs`, before RTRS sessions can be made in it."""

from __future__ import annotations

from bluebridge.host_tools.lab import root_ports
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.hca_addresses import PortAddress, port_addresses
from bluebridge.host_tools.machine.vm import Vm

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


def function(machine: Vm, address: PortAddress) -> str:
    """Return the PCI address, in its guest, of the HCA that a port belongs to."""
    found = machine.function(root_ports.HCAS[address.hca])
    assert found is not None, f"guest {machine.name} has no HCA {address.hca}"
    return found["address"]
