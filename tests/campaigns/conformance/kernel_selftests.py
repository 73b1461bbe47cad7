"""The kernel's own tests of network drivers, of the source of the guests' kernel, as an archive."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.errors import Reporter
from bluebridge.host_tools.lab.artefacts import image_errors
from bluebridge.images import program
from bluebridge.images.apt import Packages
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import run
from bluebridge.images.unpack import unpack

PLACE = "opt/linux"
"""The folder of guests, without its leading /, that stands for the top of the kernel's source."""
SELFTESTS = "tools/testing/selftests"
_CSUM = f"{SELFTESTS}/net/lib/csum.c"
_HEADER = f"{SELFTESTS}/kselftest.h"
_KEPT = (
    f"{SELFTESTS}/drivers/net/*.py",
    f"{SELFTESTS}/net/lib/*.py",
    _CSUM,
    _HEADER,
    "tools/net/ynl/lib/*.py",
    "Documentation/netlink/specs/*.yaml",
)


class KernelSelftestsRecipe(Recipe):
    """`selftests.tar`: drivers/net of the kernel's selftests with what they import, and `csum`."""

    name = "kernel-selftests"
    archive = "selftests.tar"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel

    def request(self) -> tuple[str, str]:
        """Return the apt request for the package of the source."""
        return "download", self.kernel.source()

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request()), _KEPT]

    def build(self, folder: Path) -> None:
        packages = self.packages.fetch(self.request())
        tree = folder / "tree"
        tree.mkdir()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unpack(packages, Path(scratch))
            (source,) = Path(scratch).glob("usr/src/linux-source-*.tar.xz")
            words: list[str | Path] = ["tar", "-x", "-C", tree, "--strip-components=1"]
            words += ["--wildcards", "-f", source, *(f"*/{each}" for each in _KEPT)]
            run(words, what="unpack the kernel's selftests")
        for package in packages:
            package.unlink(missing_ok=True)
        _compile(tree)
        with tarfile.open(folder / self.archive, "w") as archive:
            archive.add(tree, PLACE)
        shutil.rmtree(tree)


def _compile(tree: Path) -> None:
    """Build the one program that tests in Python start, beside its source."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in (_CSUM, _HEADER):
            shutil.copy(tree / name, scratch)
        source = Path(scratch) / Path(_CSUM).name
        program.build([source], (tree / _CSUM).with_suffix(""))


def archive(progress: Reporter) -> Path:
    """Return the archive, made if it is not cached, which takes minutes. Raises `LabError`."""
    progress("looking for the kernel's selftests; fetched once")
    with image_errors():
        artefacts = Artefacts()
        recipe = artefacts.for_kernel(KernelSelftestsRecipe)
        return artefacts.built(recipe) / recipe.archive
