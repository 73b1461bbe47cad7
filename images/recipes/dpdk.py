"""DPDK's testpmd with the drivers of ConnectX-3 and virtio-net, for guests that ask for it.

Not part of `make setup`: fetched when a program of DPDK is first requested. An archive of what the
guest's root lacks, which is unpacked over `/` of a running guest.
"""

from __future__ import annotations

import inspect
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, file_digest
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import LIBRARIES, unpack

PROGRAM = "usr/bin/dpdk-testpmd"
PROGRAMS = ("download", "dpdk-dev")
"""The package that has testpmd, without its dependencies: those are compilers and headers."""
PLUGINS = f"{LIBRARIES}/dpdk"
"""The folder of drivers; libraries that testpmd is linked to are links to some."""
_LINKED = (
    "bitratestats25",
    "bpf25",
    "cmdline25",
    "common-dpaax25",
    "crypto-scheduler25",
    "cryptodev25",
    "dmadev25",
    "eventdev25",
    "gro25",
    "gso25",
    "ip-frag25",
    "latencystats25",
    "mempool-dpaa25",
    "metrics25",
    "net-bnxt25",
    "net-bond25",
    "net-dpaa25",
    "net-i40e25",
    "net-iavf25",
    "net-ice25",
    "net-ixgbe25",
    "net-mlx5-25",
    "pcapng25",
    "pdump25",
    "rcu25",
    "reorder25",
    "sched25",
    "security25",
    "timer25",
)
"""Libraries that testpmd is linked to: drivers of other adapters, too, whose options it knows."""
REQUEST = (
    "install",
    *(f"librte-{name}" for name in _LINKED),
    "librte-mempool-ring25",
    "librte-net-mlx4-25",
    "librte-net-virtio25",
)


class DpdkRecipe(Recipe):
    """`dpdk.tar`: programs, libraries and plug-ins, by their paths below the guest's root."""

    name = "dpdk"
    archive = "dpdk.tar"

    def __init__(self, cache: Cache, packages: Packages, guest: GuestRecipe) -> None:
        super().__init__(cache, packages)
        self.guest = guest

    def inputs(self) -> Sequence[object]:
        code = file_digest(Path(inspect.getfile(prune)))
        found = [self.packages.resolve(request) for request in (PROGRAMS, REQUEST)]
        return [found, self.guest.key(), code]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        packages = [*self.packages.fetch(REQUEST), *self.packages.fetch(PROGRAMS)]
        unpack(packages, root)
        keep_programs(root)
        prune.libraries(root, ())
        base = self.guest.folder() / "root"
        with tarfile.open(folder / self.archive, "w") as archive:
            for path in lacking(root, base):
                archive.add(path, path.relative_to(root).as_posix(), recursive=False)
        shutil.rmtree(root)


def keep_programs(root: Path) -> None:
    """Remove all but testpmd, libraries and DPDK's drivers."""
    folders = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).iterdir() if path.is_dir()]
    others = ("etc", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64", "var")
    prune.remove(root, (*others, *folders), kept=(PROGRAM, PLUGINS))


def lacking(root: Path, base: Path) -> Iterator[Path]:
    """The files of `root` that `base` does not have."""
    for path in sorted((root / "usr").rglob("*")):
        inside = base / path.relative_to(root)
        if not path.is_dir() and not (inside.exists() or inside.is_symlink()):
            yield path
