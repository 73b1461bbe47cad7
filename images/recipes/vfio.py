"""`vfio.ko` with no-IOMMU mode, which Debian's kernel is built without.

Built unchanged from Debian's kernel source, so that the kernel's own vfio-pci works with it.
"""

from __future__ import annotations

from pathlib import Path

from bluebridge.images.recipes.module_build import ModuleRecipe, Toolchain

INSIDE = "drivers/vfio/"
MAKE_VARIABLES = (
    "KCFLAGS=-DCONFIG_VFIO_NOIOMMU=1",
    "CONFIG_VFIO_IOMMU_TYPE1=n",
    "CONFIG_VFIO_PCI_CORE=n",
    "CONFIG_VFIO_MDEV=n",
)


class VfioRecipe(ModuleRecipe):
    """One file, `vfio.ko`."""

    name = "vfio-noiommu"

    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        tree = toolchain.source(INSIDE)
        toolchain.make(tree, MAKE_VARIABLES, "build vfio.ko")
        toolchain.deliver(tree / "vfio.ko", folder)
