"""Runs a command in an unpacked root: by chroot as root, else in a user namespace."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from bluebridge.images.errors import ImageError
from bluebridge.images.run import run

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "TMPDIR": "/tmp"}
IN_NAMESPACE = 'mount --rbind /dev "$1/dev" && root=$1 && shift && exec chroot "$root" "$@"'
"""Device nodes cannot be made in a user namespace: the host's are bind-mounted for the process."""


def prepare(root: Path) -> None:
    """Add what builds need and maintainer scripts would have made: folders and `awk`."""
    for name in ("dev", "tmp", "proc"):
        (root / name).mkdir(exist_ok=True)
    awk = root / "usr/bin/awk"
    if not awk.exists() and (root / "usr/bin/mawk").exists():
        awk.symlink_to("mawk")


def inside(root: Path, command: Sequence[str], what: str) -> str:
    """Standard output of `command` run with `root` as its root folder; raises `ImageError`."""
    if os.geteuid() == 0:
        _make_null(root / "dev" / "null")
        return run(["chroot", root, *command], env=ENVIRONMENT, what=what)
    wrapped: list[str | Path] = ["sh", "-c", IN_NAMESPACE, "sh", root, *command]
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        return run([*own, *wrapped], env=ENVIRONMENT, what=what)
    except ImageError as error:
        if _namespace_works(own):
            raise
        if shutil.which("sudo") is None:
            mend = "run `make setup` as root, or install sudo"
            raise ImageError(f"{what}: this user may make no user namespace", mend) from error
    assignments = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    output = run(["sudo", "env", *assignments, "unshare", "--mount", *wrapped], what=what)
    run(["sudo", "chown", "-R", f"{os.getuid()}:{os.getgid()}", root], what=what)
    return output


def _namespace_works(own: Sequence[str]) -> bool:
    """Whether this user may make user namespaces at all."""
    try:
        run([*own, "true"], what="make a user namespace")
    except ImageError:
        return False
    return True


def _make_null(path: Path) -> None:
    """Make `/dev/null`; a plain file where device nodes are forbidden, as in some containers."""
    if path.exists():
        return
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.touch()
