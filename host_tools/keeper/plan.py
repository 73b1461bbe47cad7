"""What a keeper is to start and to keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from host_tools.lab import LabConfig


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
        if not self.config.hca:
            return ()
        if self.config.kernel:
            return ("HCA (mlx4)",)
        return ("HCA (vfio-pci)",) if self.config.vfio else ("HCA",)
