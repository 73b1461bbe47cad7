"""`vfio.ko` with no-IOMMU mode, which Debian's kernel leaves out.

Rebuilt unchanged from Debian's kernel source against the headers of the very same version, so
that the stock vfio-pci binds on it. It runs in an unpacked Debian root, since the kernel wants
the compiler it was made with.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.buildroot import inside, prepare
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import unpack, unpack_tar

SOURCE = ("download", "linux-source-6.12")
TOOLS = (
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "make",
    "mawk",
    "sed",
)
INSIDE = "drivers/vfio/"
MAKE_VARIABLES = (
    "KCFLAGS=-DCONFIG_VFIO_NOIOMMU=1",
    "CONFIG_VFIO_IOMMU_TYPE1=n",
    "CONFIG_VFIO_PCI_CORE=n",
    "CONFIG_VFIO_MDEV=n",
)


class VfioRecipe(Recipe):
    """One file, `vfio.ko`."""

    name = "vfio-noiommu"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel

    def headers(self) -> tuple[str, ...]:
        """The request for the kernel's headers and what it takes to use them."""
        return ("install", f"linux-headers-{self.kernel.release()}", *TOOLS)

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(SOURCE), self.packages.resolve(self.headers())]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack(self.packages.fetch(self.headers()), root)
        prepare(root)
        unpack(self.packages.fetch(SOURCE), folder / "source")
        (archive,) = (folder / "source/usr/src").glob("linux-source-*.tar.xz")
        unpack_tar(archive, root / "work", INSIDE)
        (tree,) = (root / "work").glob(f"*/{INSIDE}")
        there = f"/{tree.relative_to(root)}"
        headers = f"/usr/src/linux-headers-{self.kernel.release()}"
        inside(
            root,
            ["make", "-C", headers, f"M={there}", *MAKE_VARIABLES, "modules"],
            what="build vfio.ko",
        )
        inside(root, ["objcopy", "--strip-debug", f"{there}/vfio.ko"], what="strip vfio.ko")
        shutil.move(tree / "vfio.ko", folder / "vfio.ko")
        shutil.rmtree(folder / "source")
        shutil.rmtree(root)
