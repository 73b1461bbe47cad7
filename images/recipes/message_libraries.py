"""UCX and libfabric with their measuring programs, for guests of `bluebridge atlas`.

Not part of `make setup`: fetched when a program of them is first requested. An archive of what the
guest's root lacks, which is unpacked over `/` of a running guest.
"""

from __future__ import annotations

from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.recipes.guest_archive import GuestArchiveRecipe
from bluebridge.images.unpack import LIBRARIES

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


class MessageLibrariesRecipe(GuestArchiveRecipe):
    """`messages.tar`: programs, libraries and plug-ins."""

    name = "message-libraries"
    archive = "messages.tar"
    requests = (REQUEST,)

    def keep(self, root: Path) -> None:
        keep_programs(root)


def keep_programs(root: Path) -> None:
    """Remove all but the programs, libraries and UCX's plug-ins for verbs."""
    folders = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).iterdir() if path.is_dir()]
    others = ("etc", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64", "var")
    prune.remove(root, (*others, *folders), kept=_KEPT)
