"""The two links of a pair: the HCAs', and that of virtio-net NICs with Soft-RoCE on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bluebridge.host_tools.lab.config import ADDRESSES
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm

_PORT = 1  # the HCA has port 0
_NETWORK = "10.10.0"
SOFT_ROCE_MTU = 4200
"""The MTU that RoCE packets of 4096 bytes need."""


@dataclass(frozen=True)
class GuestLink:
    """A network between the guests, as programs in guest b use it."""

    name: str
    netdev: str
    rdma: str
    """Name of the RDMA device."""
    server: str
    """Guest a's address."""


def guest_links(pair: Pair) -> tuple[GuestLink, GuestLink]:
    """The HCAs' link, and that of NICs that are plugged into both guests here.

    `pair` has the kernel's drivers (`LabConfig.kernel`). The NICs exchange frames as datagrams
    over Unix sockets, which is QEMU's quickest way between two guests without a bridge.
    """
    netdevs = [""] * len(pair.machines)

    def prepare(number: int, machine: Vm) -> None:
        netdevs[number] = plug_nic(pair, number)
        machine.run(
            f"ip addr add {_NETWORK}.{number + 1}/24 dev {netdevs[number]} &&"
            f" ip link set {netdevs[number]} mtu {SOFT_ROCE_MTU} up &&"
            f" modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {netdevs[number]}"
        )

    pair.together(*(partial(prepare, *each) for each in enumerate(pair.machines)))
    pair.b.run(f"until ping -c 1 -W 1 {_NETWORK}.1; do :; done")
    own = pair.a.run("ls /sys/class/infiniband/mlx4_0/device/net").text.split()[0]
    return (
        GuestLink("mlx4", own, "mlx4_0", ADDRESSES[0].partition("/")[0]),
        GuestLink("rxe", netdevs[0], "rxe0", f"{_NETWORK}.1"),
    )


def nic_mac(number: int) -> str:
    """The address of the NIC in the guest of that number."""
    return f"52:54:00:00:10:{number + 1:02x}"


def plug_nic(pair: Pair, number: int, port: int = _PORT) -> str:
    """A virtio-net NIC in the guest of that number; the name of its network device."""
    machine = pair.machines[number]
    mine, theirs = (
        {"type": "unix", "path": str(pair.folder / f"nic-{name}.sock")}
        for name in (machine.name, pair.machines[1 - number].name)
    )
    machine.qmp.command("netdev_add", type="dgram", id="nic", local=mine, remote=theirs)
    machine.qmp.command(
        "device_add",
        driver="virtio-net-pci",
        bus=f"port{port}",
        netdev="nic",
        mac=nic_mac(number),
        romfile="",  # an option ROM is for booting from the network
    )
    place = f"/sys/bus/pci/devices/0000:{port + 1:02x}:00.0/virtio*/net"
    machine.run(f"modprobe virtio_net; until ls {place}; do sleep 0.1; done", timeout=30)
    return machine.run(f"ls {place}").text.split()[0]
