"""The table of bridge models, from which all parts of the project select a model.

A new model needs a row here, a row in `bluebridge.device.ntb.selection` and, if a driver of this
project is to find it, one in `bluebridge.guest.drivers.ntb`; its registers and their uses get a
module beside this one. Options, the log's analyzer, `bluebridge show`, lab and conformance run
follow from the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bluebridge.device.layout.fields import RegisterBlock
from bluebridge.device.layout.ntb import gen1, gen4, switchtec
from bluebridge.device.layout.ntb.uses import Uses

CLASS_BRIDGE = 0x068000
"""PCI class code of every model: bridge, other."""


@dataclass(frozen=True, slots=True, eq=False)
class BridgeModel:
    """One model of a non-transparent bridge, the same on both sides of a pair."""

    name: str
    """Name of the model in options and messages."""
    title: str
    """Maker and kind of the bridge, as tables show it."""
    vendor: int
    device: int
    revision: int
    subsystem: int
    """Subsystem ID; the subsystem vendor ID is the vendor ID."""
    blocks: tuple[RegisterBlock, ...]
    """The registers in BAR0."""
    uses: Uses
    """The uses of the registers."""
    window_bars: tuple[int, int]
    """The BARs that are windows to the peer's memory; the second one may be 4 GiB wide."""
    log_suffix: str
    """The part after `GUEST.` in the name of the bridge in the bus log."""
    kernel_driver: str
    """Name of the Linux kernel module that drives the bridge."""
    engine_version: int
    """Version register of the I/OAT engine on the same platform, such as 0x34 for 3.4."""
    window_alias: bool = False
    """Whether its wide window can be the peer's memory itself, mapped instead of trapped."""
    errata: tuple[str, ...] = ()
    """Errata that lock the bridge up and that the device server can play out."""
    ports: tuple[int, int] = (0, 1)
    """Port numbers that the kernel's driver gives the two sides."""
    register_window: bool = False
    """The kernel's driver reaches the peer's registers through one of the windows (b2b_mw_idx)."""
    spare_vectors: bool = False
    """The kernel's driver leaves MSI-X vectors for clients that interrupt through a window."""

    @property
    def pci_id(self) -> tuple[int, int]:
        """The vendor ID and the device ID."""
        return self.vendor, self.device

    @property
    def engine(self) -> str:
        """The version of the I/OAT engine as Linux prints it."""
        return f"{self.engine_version >> 4}.{self.engine_version & 0xF}"


GEN4 = BridgeModel(
    name="intel-gen4",
    title="Intel NTB",
    vendor=0x8086,
    device=0x347E,
    revision=0x10,
    subsystem=0,
    blocks=gen4.BLOCKS,
    uses=gen4.USES,
    window_bars=gen4.WINDOW_BARS,
    log_suffix="ntb4",
    kernel_driver="ntb_hw_intel",
    engine_version=0x34,
    window_alias=True,
)
SWITCHTEC = BridgeModel(
    name="switchtec",
    title="Switchtec",
    vendor=switchtec.VENDOR,
    device=switchtec.DEVICE,
    revision=0,
    subsystem=switchtec.DEVICE,
    blocks=switchtec.BLOCKS,
    uses=switchtec.USES,
    window_bars=switchtec.WINDOW_BARS,
    log_suffix="ntbs",
    kernel_driver="ntb_hw_switchtec",
    engine_version=0x34,
    ports=(0, 0),
    spare_vectors=True,
)
GEN1 = BridgeModel(
    name="intel-gen1",
    title="Intel NTB",
    vendor=0x8086,
    device=0x0E0D,
    revision=0x04,
    subsystem=0,
    blocks=gen1.BLOCKS,
    uses=gen1.USES,
    window_bars=gen1.WINDOW_BARS,
    log_suffix="ntb1",
    kernel_driver="ntb_hw_intel",
    engine_version=0x32,
    errata=gen1.ERRATA,
    register_window=True,
)

MODELS = (GEN4, SWITCHTEC, GEN1)
"""All bridge models; the first one is the default."""
DEFAULT = MODELS[0]
BY_NAME = {model.name: model for model in MODELS}
BY_PCI_ID = {model.pci_id: model for model in MODELS}
ALIASING = tuple(model for model in MODELS if model.window_alias)
"""Models whose wide window can be the peer's memory itself."""
HANGING = tuple(model for model in MODELS if model.errata)
"""Models whose errata can be played out."""


class BarSizes(StrEnum):
    """Sizes of the windows: 1 MiB each, or 1 MiB and 4 GiB as NTRDMA needs."""

    SMALL = "small"
    NTRDMA = "ntrdma"


WINDOW_BYTES = {BarSizes.SMALL: (1 << 20, 1 << 20), BarSizes.NTRDMA: (1 << 20, 4 << 30)}
"""Sizes of both windows in bytes."""


def names(models: tuple[BridgeModel, ...]) -> str:
    """Return the names of models for use in a sentence, such as `a or b`."""
    return " or ".join(model.name for model in models)
