"""The files that a guest fetches when its firmware boots it over the network."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.run import run

LEVEL = 10
"""The level of zstd: a third of the size, in some seconds, once for each guest root."""


class BootFilesRecipe(Recipe):
    """`vmlinuz`, the kernel as boot loaders start it, and `root.zst`, the guest's root."""

    name = "boot-files"

    def __init__(
        self, cache: Cache, packages: Packages, kernel: KernelRecipe, guest: GuestRecipe
    ) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel
        self.guest = guest

    def inputs(self) -> Sequence[object]:
        return [self.kernel.key(), self.guest.key()]

    def build(self, folder: Path) -> None:
        image = f"root/boot/vmlinuz-{self.kernel.release()}"
        shutil.copyfile(self.kernel.folder() / image, folder / "vmlinuz")
        root = self.guest.folder() / "initrd.cpio"
        words: list[str | Path] = [
            "zstd",
            "-q",
            f"-{LEVEL}",
            "-T0",
            root,
            "-o",
            folder / "root.zst",
        ]
        run(words, what="compress the guest's root")
