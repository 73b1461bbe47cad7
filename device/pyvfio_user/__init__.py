"""PCI devices written in Python for QEMU and other vfio-user clients, based on libvfio-user."""

from ._connection import interrupter
from ._library import ENVIRONMENT, Library, LibraryError, load
from ._regions import LineStores, MappedFile
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
    "LineStores",
    "MappedFile",
    "PciKind",
    "Protection",
    "Region",
    "RegionFlag",
    "Reset",
    "interrupter",
    "load",
]
