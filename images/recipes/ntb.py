"""NTB drivers and clients, which Debian's kernel is built without, and the DMA engine's driver.

Built unchanged from Debian's kernel source. The folder also has the modules of the kernel's own
package that work with them. Not part of `make setup`: built when an NTB is first requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.errors import ImageError
from bluebridge.images.modules import ModuleTree
from bluebridge.images.recipes.module_build import ModuleRecipe, Toolchain

MSI_FLAG = "KCFLAGS=-DCONFIG_NTB_MSI=1"
"""It changes struct ntb_dev, so every module that uses the structure is built with it."""
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


class NtbRecipe(ModuleRecipe):
    """All modules in one folder, stripped, as `NAME.ko`."""

    name = "ntb-modules"

    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        for part in PARTS:
            self._build_part(toolchain, part)
        for module in sorted((toolchain.root / "work").rglob("*.ko")):
            toolchain.deliver(module, folder)
        self._add_stock(folder)

    @staticmethod
    def _build_part(toolchain: Toolchain, part: Part) -> None:
        tree = toolchain.source(f"{part.folder}/{part.file}.c" if part.file else f"{part.folder}/")
        if part.file:
            (tree / "Kbuild").write_text(f"obj-m := {part.file}.o\n")
        arguments = list(part.arguments)
        if part.after:
            (symvers,) = toolchain.root.glob(f"work/*/{part.after}/Module.symvers")
            arguments.append(f"KBUILD_EXTRA_SYMBOLS={toolchain.path(symvers)}")
        toolchain.make(tree, arguments, f"build {part.file or part.folder}")

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
