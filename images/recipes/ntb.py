"""NTB drivers and clients, which Debian's kernel is built without, and the DMA engine's driver.

Built unchanged from Debian's kernel source. The folder also has the modules of the kernel's own
package that work with them. Not part of `make setup`: built when an NTB is first requested.
"""

from __future__ import annotations

from bluebridge.images.recipes.module_parts import Part, PartsRecipe

MSI_FLAG = "KCFLAGS=-DCONFIG_NTB_MSI=1"
"""A flag that changes struct ntb_dev, so every module that uses the structure is built with it."""
OPTIONS = (
    "CONFIG_NTB=m",
    "CONFIG_NTB_MSI=y",
    *(
        f"CONFIG_NTB_{name}=m"
        for name in (
            "INTEL",
            "AMD",
            "IDT",
            "SWITCHTEC",
            "EPF",
            "TRANSPORT",
            "PINGPONG",
            "TOOL",
            "PERF",
            "MSI_TEST",
        )
    ),
)


class NtbRecipe(PartsRecipe):
    """The modules of bridges in one folder, stripped, as `NAME.ko`."""

    name = "ntb-modules"
    parts = (
        Part("drivers/pci/switch", ("CONFIG_PCI_SW_SWITCHTEC=m",)),
        Part("drivers/ntb", (MSI_FLAG, *OPTIONS), after="drivers/pci/switch"),
        Part("drivers/net", (MSI_FLAG,), file="ntb_netdev", after="drivers/ntb"),
        Part("drivers/dma", file="dmatest"),
    )
    stock = ("dca", "ioatdma")
