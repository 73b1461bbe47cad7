"""Modules of another kernel than the usual one, as an archive that lies over the guest's root."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bluebridge.images.initramfs import archive_of
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.guest_contents import MODULES
from bluebridge.images.recipes.kernel import KernelRecipe, ModuleTree
from bluebridge.images.recipes.kernel_modules import VfioRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import run
from bluebridge.images.unpack import foreign

ARCHIVE = "modules.cpio"
OF_THE_AGENT = ("virtio_pci", "virtio_console")
"""Modules without which the agent has no ports, in kernels that do not have them built in."""
_LISTINGS = ("modules.builtin", "modules.builtin.modinfo", "modules.order")


class GuestModulesRecipe(Recipe):
    """`modules.cpio`: what a guest needs of the modules of one of Debian's kernels."""

    name = "guest-modules"

    def __init__(self, kernel: KernelRecipe, guest: GuestRecipe) -> None:
        super().__init__(kernel.cache, kernel.packages)
        self.kernel = kernel
        self.vfio = VfioRecipe(kernel.cache, kernel.packages, kernel)
        self.guest = guest
        self.name = kernel.named(type(self).name)

    def inputs(self) -> Sequence[object]:
        return [self.kernel.key(), self.vfio.key(), self.guest.key()]

    def build(self, folder: Path) -> None:
        source = self.kernel.modules()
        tree = ModuleTree(source)
        # What later kernels no longer have as a module is part of them, or is done without it.
        wanted = [name for name in (*OF_THE_AGENT, *MODULES) if name in tree]
        files = tree.closure(wanted)
        for path in files:
            if path.name == "vfio.ko":
                files[path] = (self.vfio.folder() / "vfio.ko").read_bytes()
        listings = {name: (source / name).read_bytes() for name in _LISTINGS}
        archive = pack(self.kernel.release(), files, listings, self.guest.folder() / "root")
        (folder / ARCHIVE).write_bytes(archive)


def pack(
    release: str, modules: Mapping[Path, bytes], listings: Mapping[str, bytes], guest_root: Path
) -> bytes:
    """Return a cpio archive with modules below `lib/modules/RELEASE`, their dependencies listed.

    `modules` has contents by the path below that folder, `listings` kbuild's own files.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        target = root / "usr/lib/modules" / release
        target.mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        for path, content in {
            **{Path(each): text for each, text in listings.items()},
            **modules,
        }.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)
        depmod = [*foreign(guest_root, "usr/bin/kmod", "depmod"), "-b", str(root), release]
        run(depmod, what="depmod")
        (target / "modules.builtin.modinfo").unlink(missing_ok=True)
        (root / "lib").unlink()
        return archive_of(root)


def listing_of(built_in: Iterable[str]) -> bytes:
    """Return `modules.builtin` for a kernel that has these modules built in."""
    return "".join(f"kernel/{name}.ko\n" for name in sorted(built_in)).encode()
