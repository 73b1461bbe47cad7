"""Tools for looking at programs and at the kernel, for guests that ask for them.

Not part of `make setup`: fetched when it is first asked for (`bluebridge up --image debug`). An
archive of what the guest's root lacks, which is unpacked over `/` of a running guest, so that the
root of all other guests stays small.
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

PROGRAMS = ("strace", "gdb", "gdbserver", "trace-cmd", "perf", "nano", "bash", "ltrace")
REQUEST = (
    "install",
    "strace",
    "ltrace",
    "gdb",
    "gdbserver",
    "trace-cmd",
    "linux-perf",
    "nano",
    "bash",
    "ncurses-base",
)
OPENED_BY_NAME = ("libthread_db.so.1",)
"""The libraries that gdb opens to list a program's threads."""
_KEPT = (
    *(f"usr/bin/{name}" for name in PROGRAMS),
    "usr/share/gdb",
    "usr/share/nano",
    "usr/share/terminfo",
    "usr/libexec/perf-core",
    f"{LIBRARIES}/trace-cmd",
    f"{LIBRARIES}/traceevent",
)


class DebugToolsRecipe(Recipe):
    """`debug.tar`: programs, libraries and their data, by their paths below the guest's root."""

    name = "debug-tools"
    archive = "debug.tar"

    def __init__(self, cache: Cache, packages: Packages, guest: GuestRecipe) -> None:
        super().__init__(cache, packages)
        self.guest = guest

    def inputs(self) -> Sequence[object]:
        code = file_digest(*(Path(inspect.getfile(module)) for module in (prune, dpdk)))
        return [self.packages.resolve(REQUEST), self.guest.key(), code]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack(self.packages.fetch(REQUEST), root)
        keep_tools(root)
        prune.libraries(root, OPENED_BY_NAME)
        base = self.guest.folder() / "root"
        with tarfile.open(folder / self.archive, "w") as archive:
            for path in dpdk.lacking(root, base):
                archive.add(path, path.relative_to(root).as_posix(), recursive=False)
        shutil.rmtree(root)


def keep_tools(root: Path) -> None:
    """Remove all but the tools, their data and shared libraries."""
    inner = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).iterdir() if path.is_dir()]
    others = ("[!u]*", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64")
    prune.remove(root, (*others, *inner), kept=_KEPT)
