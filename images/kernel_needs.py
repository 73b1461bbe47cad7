"""What a kernel needs to be a guest: configuration symbols, why, and what to build it with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

GUEST, KERNEL = "guest", "kernel"
"""The values of `--driver` that need something of a kernel."""
CONNECTX3, CONNECTX5 = "connectx3", "connectx5"
"""The values of `--card` whose drivers are needs."""


LOADED = {
    "INFINIBAND": ("ib_core", "ib_cm", "iw_cm"),
    "INFINIBAND_ADDR_TRANS": ("rdma_cm",),
    "INFINIBAND_USER_ACCESS": ("rdma_ucm",),
    "TUN": ("tun",),
    "BLK_DEV_NBD": ("nbd",),
    "BLK_DEV_RAM": ("brd",),
}
"""Modules that guests load by name, besides those of the needs, by the symbol they belong to."""


@dataclass(frozen=True)
class Need:
    """A configuration symbol without which something of a guest does not work."""

    symbol: str
    purpose: str
    module: str = ""
    """The module that it is, where it may be one: loaded by name."""
    driver: str = ""
    """The `--driver` that needs it; empty for what every guest needs."""
    card: str = ""
    """The `--card` whose driver it is; empty for what all cards need."""

    def applies(self, driver: str, cards: Collection[str]) -> bool:
        """Whether guests of that `--driver` with these cards need it."""
        return self.driver in ("", driver) and (not self.card or self.card in cards)


BOOT = (
    Need("BLK_DEV_INITRD", "the guest's root"),
    Need("DEVTMPFS", "its device nodes"),
    Need("BINFMT_ELF", "its programs"),
    Need("BINFMT_SCRIPT", "its first process"),
    Need("PROC_FS", "/proc"),
    Need("SYSFS", "/sys"),
    Need("TMPFS", "/tmp and /run"),
    Need("SERIAL_8250_CONSOLE", "the console"),
    Need("PCI", "every device"),
    Need("PCI_MSI", "interrupts of the device"),
    Need("HOTPLUG_PCI_PCIE", "devices that are plugged into a restored guest"),
    Need("HOTPLUG_PCI_ACPI", "devices that are plugged into a restored guest"),
    Need("NET", "sockets"),
    Need("UNIX", "sockets"),
    Need("INET", "addresses"),
    Need("EPOLL", "the agent"),
    Need("VIRTIO_PCI", "the agent's ports", "virtio_pci"),
    Need("VIRTIO_CONSOLE", "the agent's ports", "virtio_console"),
)
DRIVERS = (
    Need("HUGETLBFS", "DMA memory of the Python driver", driver=GUEST),
    Need("VFIO", "the Python driver", "vfio", GUEST),
    Need("VFIO_NOIOMMU", "the Python driver", driver=GUEST),
    Need("VFIO_PCI", "the Python driver", "vfio_pci", GUEST),
    Need("MLX4_CORE", "the HCA", "mlx4_core", KERNEL, CONNECTX3),
    Need("MLX4_EN", "the HCA's network device", "mlx4_en", KERNEL, CONNECTX3),
    Need("MLX4_INFINIBAND", "the HCA's RDMA device", "mlx4_ib", KERNEL, CONNECTX3),
    Need("MLX5_CORE", "the HCA", "mlx5_core", KERNEL, CONNECTX5),
    Need("MLX5_CORE_EN", "the HCA's network device", "", KERNEL, CONNECTX5),
    Need("MLX5_INFINIBAND", "the HCA's RDMA device", "mlx5_ib", KERNEL, CONNECTX5),
    Need("INFINIBAND_USER_ACCESS", "verbs", "ib_uverbs", KERNEL),
    Need("INFINIBAND_USER_MAD", "management datagrams", "ib_umad", KERNEL),
    Need("INFINIBAND_ADDR_TRANS", "connections by address", "", KERNEL),
    Need("INFINIBAND_IPOIB", "IP over InfiniBand", "ib_ipoib", KERNEL),
)


def parse(config: str) -> dict[str, str]:
    """Return the symbols of a `.config` that are set, with their values, without `CONFIG_`."""
    return dict(re.findall(r"^CONFIG_(\w+)=(.*)$", config, re.MULTILINE))


def missing(set_symbols: Mapping[str, str], driver: str, cards: Collection[str]) -> list[Need]:
    """Return the needs that a configuration does not meet, for guests with these cards."""
    wanted = [need for need in (*BOOT, *DRIVERS) if need.applies(driver, cards)]
    return [need for need in wanted if need.symbol not in set_symbols]


def must_be_built_in(set_symbols: Mapping[str, str]) -> list[Need]:
    """Return the needs that are modules where the first process can load none."""
    return [need for need in BOOT if set_symbols.get(need.symbol) == "m" and not need.module]


def lacking_modules(
    set_symbols: Mapping[str, str], modules: Iterable[str], driver: str, cards: Collection[str]
) -> list[Need]:
    """Return the needs that the kernel has as modules which `modules`, by name, do not have."""
    there = set(modules)
    return [
        need
        for need in (*BOOT, *DRIVERS)
        if need.applies(driver, cards)
        and need.module
        and set_symbols.get(need.symbol) == "m"
        and need.module not in there
    ]


def without_config(
    modules: Iterable[str], built_in: Iterable[str], driver: str, cards: Collection[str]
) -> list[Need]:
    """Return the needs of modules that are neither in `modules` nor in `built_in`, by name."""
    there = {*modules, *built_in}
    return [
        need
        for need in DRIVERS
        if need.driver and need.applies(driver, cards) and need.module and need.module not in there
    ]


def built_in(set_symbols: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of modules that are part of a kernel of this configuration."""
    for need in (*BOOT, *DRIVERS):
        if need.module and set_symbols.get(need.symbol) == "y":
            yield need.module
    for symbol, names in LOADED.items():
        if set_symbols.get(symbol) == "y":
            yield from names
