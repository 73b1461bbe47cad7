"""NTB drivers and their clients, which Debian's kernel leaves out, and the DMA engine's driver.

Built unchanged from Debian's kernel source against the headers of the very same version, as
`vfio.ko` is. Beside them lie the modules of the kernel's own package that work with them. Not part
of `make setup`: made the first time somebody asks for an NTB.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.buildroot import inside, prepare
from bluebridge.images.cache import Cache
from bluebridge.images.errors import ImageError
from bluebridge.images.modules import ModuleTree
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.recipes.vfio import SOURCE, TOOLS
from bluebridge.images.unpack import unpack, unpack_tar

MSI_FLAG = "KCFLAGS=-DCONFIG_NTB_MSI=1"
"""It changes struct ntb_dev, so every module that knows of it is built with it."""
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
STOCK = ("dca", "ioatdma")
"""Modules that are taken from the kernel's package."""


@dataclass(frozen=True)
class Part:
    """One external module build: `folder` of the source tree, or one `file` of it alone."""

    folder: str
    arguments: tuple[str, ...] = ()
    file: str = ""
    after: str = ""
    """The folder of the part whose symbols it uses."""


PARTS = (
    Part("drivers/pci/switch", ("CONFIG_PCI_SW_SWITCHTEC=m",)),
    Part("drivers/ntb", (MSI_FLAG, *OPTIONS), after="drivers/pci/switch"),
    Part("drivers/net", (MSI_FLAG,), file="ntb_netdev", after="drivers/ntb"),
    Part("drivers/dma", file="dmatest"),
)


class NtbRecipe(Recipe):
    """All modules in one folder, stripped, as `NAME.ko`."""

    name = "ntb-modules"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel

    def headers(self) -> tuple[str, ...]:
        """The request for the kernel's headers and what it takes to use them."""
        return ("install", f"linux-headers-{self.kernel.release()}", *TOOLS)

    def inputs(self) -> Sequence[object]:
        return [
            self.packages.resolve(SOURCE),
            self.packages.resolve(self.headers()),
            self.kernel.key(),
        ]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack(self.packages.fetch(self.headers()), root)
        prepare(root)
        unpack(self.packages.fetch(SOURCE), folder / "source")
        (archive,) = (folder / "source/usr/src").glob("linux-source-*.tar.xz")
        for part in PARTS:
            self._build_part(root, archive, part)
        for module in sorted((root / "work").rglob("*.ko")):
            inside(
                root, ["objcopy", "--strip-debug", f"/{module.relative_to(root)}"], what="strip"
            )
            shutil.move(module, folder / module.name)
        self._add_stock(folder)
        shutil.rmtree(folder / "source")
        shutil.rmtree(root)

    def _build_part(self, root: Path, archive: Path, part: Part) -> None:
        work = root / "work"
        only = f"{part.folder}/{part.file}.c" if part.file else f"{part.folder}/"
        unpack_tar(archive, work, only)
        (tree,) = work.glob(f"*/{part.folder}")
        if part.file:
            (tree / "Kbuild").write_text(f"obj-m := {part.file}.o\n")
        command = ["make", "-C", f"/usr/src/linux-headers-{self.kernel.release()}"]
        command += [f"M=/{tree.relative_to(root)}", *part.arguments]
        if part.after:
            (before,) = work.glob(f"*/{part.after}/Module.symvers")
            command.append(f"KBUILD_EXTRA_SYMBOLS=/{before.relative_to(root)}")
        inside(root, [*command, "modules"], what=f"build {part.file or part.folder}")

    def _add_stock(self, folder: Path) -> None:
        modules = ModuleTree(
            self.kernel.folder() / "root" / "usr/lib/modules" / self.kernel.release()
        )
        for name in STOCK:
            (folder / f"{name}.ko").write_bytes(modules.read(name))


def module(folder: Path, name: str) -> Path:
    """The file of one module; raises `ImageError` when there is none of that name."""
    path = folder / f"{name}.ko"
    if not path.exists():
        raise ImageError(f"there is no NTB module {name}", "see `bluebridge up --help`")
    return path
