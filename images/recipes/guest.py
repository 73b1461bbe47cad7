"""The guest's root as one initramfs: Debian packages, modules, init; no code of `guest/` yet.

The kernel unpacks it into memory at each boot, so its size is boot time: documentation, locales
and unused parts of Python's library stay out, and Python's byte code is made here, once.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from images.apt import Packages
from images.cache import Cache, file_digest
from images.cpio import CpioWriter
from images.modules import ModuleTree
from images.overlay import compile_python
from images.recipes.kernel import KernelRecipe
from images.recipes.recipe import Recipe
from images.recipes.vfio import VfioRecipe
from images.run import run
from images.unpack import foreign, unpack

REQUEST = (
    "install",
    "busybox-static",
    "python3-minimal",
    "libpython3-stdlib",
    "kmod",
    "iproute2",
    "pciutils",
    "ethtool",
    "libc-bin",
    "dash",
)
MODULES = (
    "mlx4_core",
    "mlx4_en",
    "mlx4_ib",
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "ib_cm",
    "iw_cm",
    "rdma_cm",
    "rdma_ucm",
    "vfio",
    "vfio_pci",
    "vfio_iommu_type1",
    "virtio_net",
    "virtio_blk",
    "crc32_generic",
    "crc32c_generic",
    "crc32c_intel",
)
OWN = Path(__file__).parents[1] / "guest"
SCRIPTS = {"init": "init", "bluebridge-vfio": "usr/sbin/bluebridge-vfio"}
FOLDERS = ("dev", "proc", "sys", "tmp", "run", "root", "mnt", "opt", "etc", "var", "lib/modules")
USELESS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/bash-completion",
    "usr/share/doc-base",
    "usr/share/zoneinfo",
    "usr/share/perl5",
    "usr/share/debconf",
    "usr/share/initramfs-tools",
    "usr/share/pixmaps",
    "usr/share/python3",
    "usr/share/applications",
    "usr/lib/systemd",
    "usr/share/gcc",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/bin/perl*",
    "usr/lib/locale",
    "usr/lib/x86_64-linux-gnu/security",
    "var/lib",
    "var/cache",
    "var/log",
    "etc/init.d",
    "etc/security",
    "etc/systemd",
    "etc/pam.d",
    "usr/lib/python3.*/test",
    "usr/lib/python3.*/idlelib",
    "usr/lib/python3.*/lib2to3",
    "usr/lib/python3.*/ensurepip",
    "usr/lib/python3.*/pydoc_data",
    "usr/lib/python3.*/tkinter",
    "usr/lib/python3.*/turtledemo",
    "usr/lib/python3.*/config-*",
    "usr/lib/python3.*/sqlite3",
    "usr/lib/python3.*/unittest",
    "usr/lib/python3.*/distutils",
)


class GuestRecipe(Recipe):
    """`initrd.cpio`, and `root/`: the tree it was made from, whose Python compiles our code."""

    name = "guest"

    def __init__(
        self, cache: Cache, packages: Packages, kernel: KernelRecipe, vfio: VfioRecipe
    ) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel
        self.vfio = vfio

    def inputs(self) -> Sequence[object]:
        scripts = file_digest(*(OWN / name for name in sorted(SCRIPTS)))
        return [self.packages.resolve(REQUEST), self.kernel.key(), self.vfio.key(), scripts]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack(self.packages.fetch(REQUEST), root)
        _strip(root)
        _complete(root)
        self._add_modules(root)
        compile_python(root, root, *root.glob("usr/lib/python3*"))
        with open(folder / "initrd.cpio", "wb") as stream:
            writer = CpioWriter(stream)
            writer.tree(root)
            # The kernel opens its first console before init has mounted anything.
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


def _strip(root: Path) -> None:
    """Remove what no guest of ours reads."""
    for pattern in USELESS:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _complete(root: Path) -> None:
    """Folders, accounts, init, and busybox's commands where no package brings a better one."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text("root::0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for name, target in SCRIPTS.items():
        shutil.copyfile(OWN / name, root / target)
        (root / target).chmod(0o755)
    for applet in run([root / "usr/bin/busybox", "--list"], what="busybox").split():
        if not any((root / "usr" / folder / applet).exists() for folder in ("bin", "sbin")):
            (root / "usr/bin" / applet).symlink_to("busybox")
    # The package leaves this name to its maintainer script.
    python = root / "usr/bin/python3"
    if not python.exists():
        python.symlink_to(next(root.glob("usr/bin/python3.*")).name)
