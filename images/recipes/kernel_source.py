"""What kernels are built from and with: Debian's source, and a root with compiler and tools."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.module_build import SETPRIV, TOOLS, UNUSED, prepare
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import run
from bluebridge.images.unpack import unpack


class KernelSourceRecipe(Recipe):
    """`tree/`: the source of one of Debian's kernels, unpacked."""

    name = "kernel-source"

    def __init__(self, kernel: KernelRecipe) -> None:
        super().__init__(kernel.cache, kernel.packages)
        self.kernel = kernel
        self.name = f"{type(self).name}-{kernel.which.name}"

    def request(self) -> tuple[str, str]:
        """Return the apt request for the package of the source."""
        return "download", self.kernel.source()

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request())]

    def build(self, folder: Path) -> None:
        packages = self.packages.fetch(self.request())
        unpack(packages, folder / "package")
        (archive,) = (folder / "package/usr/src").glob("linux-source-*.tar.xz")
        (folder / "tree").mkdir()
        words: list[str | Path] = [
            "tar",
            "-x",
            "-C",
            folder / "tree",
            "--strip-components=1",
            "-f",
            archive,
        ]
        run(words, what="unpack the kernel's source")
        shutil.rmtree(folder / "package")
        for package in packages:
            package.unlink(missing_ok=True)


class KernelToolsRecipe(Recipe):
    """`root/`: a Debian root with what the build of a whole kernel runs."""

    name = "kernel-tools"
    request = (
        *("install", "gcc", "libc6-dev", "libelf-dev", "flex", "bison", "bc", "kmod", "perl-base"),
        *("gzip", "xz-utils", "tar", "cpio", SETPRIV, *TOOLS),
    )

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request)]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        packages = self.packages.fetch(self.request)
        unpack(packages, root)
        prepare(root)
        for name in UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        for package in packages:
            package.unlink(missing_ok=True)
