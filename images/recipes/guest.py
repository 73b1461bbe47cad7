"""The guest's root as one initramfs: Debian packages, kernel modules, init; without `guest/`.

The kernel unpacks it into memory at each boot, so its size adds to the boot time: documentation,
locales and unused parts of Python's library are left out, and Python's byte code is compiled here.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import PACKAGE, Cache, file_digest
from bluebridge.images.code_digest import code_digest
from bluebridge.images.initramfs import CpioWriter, compile_python
from bluebridge.images.recipes import guest_contents
from bluebridge.images.recipes.guest_contents import (
    FOLDERS,
    MODULES,
    OPENED_BY_NAME,
    REMOVED,
    REQUEST,
    TESTS,
    UNWANTED,
)
from bluebridge.images.recipes.kernel import KernelRecipe, ModuleTree
from bluebridge.images.recipes.kernel_modules import VfioRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import run
from bluebridge.images.unpack import foreign, gunzip, prune, prune_libraries, unpack

OWN = PACKAGE / "images" / "guest"
CODE = (guest_contents, unpack)
"""The files of these are part of the key of the image."""
SCRIPTS = {
    "init": "init",
    "bluebridge-mlx4": "usr/sbin/bluebridge-mlx4",
    "bluebridge-rxe": "usr/sbin/bluebridge-rxe",
    "bluebridge-vfio": "usr/sbin/bluebridge-vfio",
    "nohup": "usr/bin/nohup",
    "pkill": "usr/bin/pkill",
    "udevadm": "usr/bin/udevadm",
}


class GuestRecipe(Recipe):
    """`initrd.cpio`, and `root/`: the tree it was made from, whose Python compiles the overlay."""

    name = "guest"

    def __init__(
        self, cache: Cache, packages: Packages, kernel: KernelRecipe, vfio: VfioRecipe
    ) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel
        self.vfio = vfio

    def inputs(self) -> Sequence[object]:
        scripts = file_digest(*(OWN / name for name in sorted(SCRIPTS)))
        code = code_digest(*(Path(inspect.getfile(module)) for module in CODE))
        packages = self.packages.resolve(REQUEST)
        return [packages, self.kernel.key(), self.vfio.key(), scripts, code]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        packages = self.packages.fetch(REQUEST)
        unpack([path for path in packages if path.name.partition("_")[0] not in UNWANTED], root)
        prune(root, REMOVED, kept=[TESTS])
        gunzip(root / TESTS)
        prune_libraries(root, OPENED_BY_NAME)
        _complete(root)
        self._add_modules(root)
        compile_python(root, root, *root.glob("usr/lib/python3*"), root / TESTS)
        with open(folder / "initrd.cpio", "wb") as stream:
            writer = CpioWriter(stream)
            writer.tree(root)
            # The kernel opens /dev/console before init mounts devtmpfs.
            writer.character_device("dev/console", 5, 1)
            writer.character_device("dev/null", 1, 3, 0o666)
            writer.close()

    def _add_modules(self, root: Path) -> None:
        release = self.kernel.release()
        source = self.kernel.folder() / "root/usr/lib/modules" / release
        target = root / "usr/lib/modules" / release
        for path, content in ModuleTree(source).closure(MODULES).items():
            if path.name == "vfio.ko":
                content = (self.vfio.folder() / "vfio.ko").read_bytes()
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)
        for listing in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            shutil.copyfile(source / listing, target / listing)
        run([*foreign(root, "usr/bin/kmod", "depmod"), "-b", str(root), release], what="depmod")
        (target / "modules.builtin.modinfo").unlink()


def _complete(root: Path) -> None:
    """Add folders, accounts, init, and busybox's commands that no package provides."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text(guest_contents.PASSWD)
    (root / "etc/group").write_text(guest_contents.GROUP)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (root / "var/run").symlink_to("/run")
    for name, target in SCRIPTS.items():
        shutil.copyfile(OWN / name, root / target)
        (root / target).chmod(0o755)
    for applet in run([root / "usr/bin/busybox", "--list"], what="busybox").split():
        if not any((root / "usr" / folder / applet).exists() for folder in ("bin", "sbin")):
            (root / "usr/bin" / applet).symlink_to("busybox")
    # The maintainer script of the package would make this link.
    python = root / "usr/bin/python3"
    if not python.exists():
        python.symlink_to(next(root.glob("usr/bin/python3.*")).name)
