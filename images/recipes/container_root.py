"""The Debian of a container image: packages of one release, unpacked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.initramfs import compile_python
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import run
from bluebridge.images.unpack import prune, unpack

REQUEST = (
    *("install", "base-files", "bash", "ca-certificates", "coreutils", "dash", "findutils"),
    *("git", "grep", "gzip", "hostname", "iproute2", "libc-bin", "libjson-c5", "libseccomp2"),
    *("procps", "python3", "sed", "tar", "util-linux", "zstd"),
)
"""What the lab and jobs need; git, tar and certificates are for a job's steps."""
REMOVED = (
    *("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/perl*"),
    *("usr/share/bash-completion", "usr/share/zoneinfo", "usr/share/lintian", "usr/share/git*"),
    *("usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl*", "usr/bin/perl*"),
    *("usr/lib/python3.*/EXTERNALLY-MANAGED", "usr/lib/python3.*/test", "usr/lib/systemd"),
)
UNPACK = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"'
PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


class RootRecipe(Recipe):
    """A Debian without maintainer scripts run, as containers of the lab need it, in `root/`."""

    name = "container-root"

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(REQUEST), REMOVED, PASSWD, GROUP]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack([], root)
        for package in self.packages.fetch(REQUEST):
            # Debian 12 has files below /lib, which is a link here.
            run(["sh", "-c", UNPACK, "sh", package, root], what=f"unpack {package.name}")
        prune(root, REMOVED)
        for name in ("root", "home", "tmp", "run", "var/tmp", "proc", "sys", "dev", "work"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "var/tmp", "work"):
            (root / name).chmod(0o1777)
        (root / "etc/passwd").write_text(PASSWD)
        (root / "etc/group").write_text(GROUP)
        # Maintainer scripts would make these.
        _certificates(root)
        own = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
        run([*own, "chroot", root, "/sbin/ldconfig"], what="ldconfig")
        if not (root / "usr/bin/awk").exists() and (root / "usr/bin/mawk").exists():
            (root / "usr/bin/awk").symlink_to("mawk")
        compile_python(root, root, *root.glob("usr/lib/python3*"))


def _certificates(root: Path) -> None:
    """Write the file of certificates that git and pip read."""
    found = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    target = root / "etc/ssl/certs/ca-certificates.crt"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(path.read_text() for path in found))
