"""The plan of a keeper: the pair that it starts and keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.lab.config import LabConfig


@dataclass(frozen=True)
class Plan:
    """The configuration of a pair, and the archives and modules that its guests get."""

    config: LabConfig
    modules: tuple[Path, ...] = ()
    """Kernel modules to load in all guests, in this order."""
    archives: tuple[Path, ...] = ()
    """Archives to unpack over the root of all guests, before the modules."""
    verbose: bool = False
    """Whether `up` reports every step of the start."""

    def devices(self, name: str) -> tuple[str, ...]:
        """Return the devices of guest `name` in words for people."""
        config = self.config
        found = []
        if config.has_nic(name):
            found.append("virtio NIC (rdma_rxe)")
        if config.has_hca(name):
            hcas = "HCA" if config.hcas == 1 else f"{config.hcas} HCAs"
            found.append(_driven(hcas, config, name, "mlx4"))
        if config.bridge:
            found.append(_driven(f"NTB {config.bridge.ntb_model}", config, name, "ntb_netdev"))
            found.append(_driven("DMA engine", config, name, "ioatdma"))
        return tuple(found)


def _driven(device: str, config: LabConfig, name: str, driver: str) -> str:
    """Return the words for a device of guest `name` and the driver that it has."""
    if config.kernel_drives(name):
        return f"{device} ({driver})"
    return f"{device} (vfio-pci)" if config.binds(name) else device
