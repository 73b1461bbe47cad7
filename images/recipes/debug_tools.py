"""Tools for looking at programs and at the kernel, for guests that ask for them.

Not part of `make setup`: fetched when it is first asked for (`bluebridge up --image debug`). An
archive of what the guest's root lacks, which is unpacked over `/` of a running guest, so that the
root of all other guests stays small.
"""

from __future__ import annotations

from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.recipes.guest_archive import GuestArchiveRecipe
from bluebridge.images.unpack import LIBRARIES

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


class DebugToolsRecipe(GuestArchiveRecipe):
    """`debug.tar`: programs, libraries and their data."""

    name = "debug-tools"
    archive = "debug.tar"
    requests = (REQUEST,)
    opened = OPENED_BY_NAME

    def keep(self, root: Path) -> None:
        keep_tools(root)


def keep_tools(root: Path) -> None:
    """Remove all but the tools, their data and shared libraries."""
    inner = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).iterdir() if path.is_dir()]
    others = ("[!u]*", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64")
    prune.remove(root, (*others, *inner), kept=_KEPT)
