"""PCI devices in Python for QEMU and other vfio-user clients, by way of libvfio-user."""

from ._bulk import MappedFile
from ._library import ENVIRONMENT, Library, LibraryError, load
from .config_space import ConfigSpace
from .constants import Irq, PciKind, Protection, Region, RegionFlag, Reset
from .context import Context
from .memory import DmaRegion

__all__ = [
    "ENVIRONMENT",
    "ConfigSpace",
    "Context",
    "DmaRegion",
    "Irq",
    "Library",
    "LibraryError",
    "MappedFile",
    "PciKind",
    "Protection",
    "Region",
    "RegionFlag",
    "Reset",
    "load",
]
