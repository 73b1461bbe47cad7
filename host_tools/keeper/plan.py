"""What a keeper is to start and to keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.lab.config import LabConfig


@dataclass(frozen=True)
class Plan:
    """A pair and what is put into its guests."""

    config: LabConfig
    modules: tuple[Path, ...] = ()
    """Kernel modules to load in both guests, in this order."""
    verbose: bool = False
    """Tell every step of the start."""

    @property
    def devices(self) -> tuple[str, ...]:
        """What is plugged into each guest, for people."""
        config = self.config
        found = []
        if config.hca:
            found.append(_driven("HCA", config, "mlx4"))
        if config.bridge:
            found.append(_driven(f"NTB {config.bridge.ntb_model}", config, "ntb_netdev"))
            found.append(_driven("DMA engine", config, "ioatdma"))
        return tuple(found)


def _driven(device: str, config: LabConfig, driver: str) -> str:
    """A device and who drives it."""
    if config.kernel:
        return f"{device} ({driver})"
    return f"{device} (vfio-pci)" if config.vfio else device
