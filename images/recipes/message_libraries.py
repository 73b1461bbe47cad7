"""UCX and libfabric with their measuring programs, for guests of `bluebridge atlas`.

Not part of `make setup`: fetched when a program of them is first requested. An archive of what the
guest's root lacks, which is unpacked over `/` of a running guest.
"""

from __future__ import annotations

import inspect
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, file_digest
from bluebridge.images.recipes import dpdk
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.unpack import LIBRARIES, unpack

PROGRAMS = ("ucx_perftest", "fi_pingpong")
REQUEST = ("install", "ucx-utils", "libfabric-bin")
_KEPT = (
    *(f"usr/bin/{name}" for name in PROGRAMS),
    *(
        f"{LIBRARIES}/ucx/libuct_{part}.so.0{end}"
        for part in ("ib", "rdmacm")
        for end in ("", ".0.0")
    ),
    f"{LIBRARIES}/pmix2/lib",
)
"""The programs, and UCX's plug-ins for verbs: those for graphics cards need 200 MB of compilers."""


class MessageLibrariesRecipe(Recipe):
    """`messages.tar`: programs, libraries and plug-ins, by their paths below the guest's root."""

    name = "message-libraries"
    archive = "messages.tar"

    def __init__(self, cache: Cache, packages: Packages, guest: GuestRecipe) -> None:
        super().__init__(cache, packages)
        self.guest = guest

    def inputs(self) -> Sequence[object]:
        code = file_digest(*(Path(inspect.getfile(module)) for module in (prune, dpdk)))
        return [self.packages.resolve(REQUEST), self.guest.key(), code]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack(self.packages.fetch(REQUEST), root)
        keep_programs(root)
        prune.libraries(root, ())
        base = self.guest.folder() / "root"
        with tarfile.open(folder / self.archive, "w") as archive:
            for path in dpdk.lacking(root, base):
                archive.add(path, path.relative_to(root).as_posix(), recursive=False)
        shutil.rmtree(root)


def keep_programs(root: Path) -> None:
    """Remove all but the programs, libraries and UCX's plug-ins for verbs."""
    folders = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).iterdir() if path.is_dir()]
    others = ("etc", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64", "var")
    prune.remove(root, (*others, *folders), kept=_KEPT)
