"""Kernel modules that Debian's kernel is built without, built unchanged from its source."""

from __future__ import annotations

from pathlib import Path

from bluebridge.images.recipes.module_build import ModuleRecipe, Part, PartsRecipe, Toolchain

INSIDE = "drivers/vfio/"
MAKE_VARIABLES = (
    "KCFLAGS=-DCONFIG_VFIO_NOIOMMU=1",
    "CONFIG_VFIO_IOMMU_TYPE1=n",
    "CONFIG_VFIO_PCI_CORE=n",
    "CONFIG_VFIO_MDEV=n",
)

MSI_FLAG = "KCFLAGS=-DCONFIG_NTB_MSI=1"
"""A flag that changes struct ntb_dev, so every module that uses the structure is built with it."""
OPTIONS = (
    "CONFIG_NTB=m",
    "CONFIG_NTB_MSI=y",
    *(
        f"CONFIG_NTB_{name}=m"
        for name in (
            *("INTEL", "AMD", "IDT", "SWITCHTEC", "EPF", "TRANSPORT", "PINGPONG", "TOOL", "PERF"),
            "MSI_TEST",
        )
    ),
)

RTRS = "drivers/infiniband/ulp/rtrs"


class VfioRecipe(ModuleRecipe):
    """One file, `vfio.ko`."""

    name = "vfio-noiommu"

    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        tree = toolchain.source(INSIDE)
        toolchain.make(tree, MAKE_VARIABLES, "build vfio.ko")
        toolchain.deliver(tree / "vfio.ko", folder)


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


class RtrsRecipe(PartsRecipe):
    """rtrs-core, rtrs-client, rtrs-server, rnbd-client, rnbd-server; nbd and ext4."""

    name = "rtrs-modules"
    parts = (
        Part(
            RTRS,
            tuple(
                f"CONFIG_INFINIBAND_RTRS{side}=m"
                for side in ("", "_CLIENT", "_SERVER")  # the first is a symbol without a prompt
            ),
        ),
        Part(
            "drivers/block/rnbd",
            ("CONFIG_BLK_DEV_RNBD_CLIENT=m", "CONFIG_BLK_DEV_RNBD_SERVER=m"),
            after=RTRS,
            headers=RTRS,
        ),
    )
    stock = ("nbd", "ext4")
