"""A sandbox for builds of untrusted source: it reads a toolchain and writes one folder.

The build has its own mount, process and (empty) network namespaces. It sees the toolchain's `/usr`
read-only and a private folder. It has no privileges: started by root it becomes another user, and
in every case it loses all capabilities and cannot gain new ones. Mounts and processes belong to
the namespaces, so they end with the build, or with the caller, even if that is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.report import NO_MOUNT_POINT, ImageError, failure
from bluebridge.images.unpack import MERGED

NOBODY = 65534
"""The user that builds when root is the caller."""
NODES = ("null", "zero", "urandom")
SYSTEM = ("usr", "dev", "proc", "sys", "etc", *MERGED)
"""Top-level folders of the sandbox itself."""
COMMAND_FAILED = 90
"""Exit status of `_SCRIPT` when the command ran and failed; any other one is the sandbox's."""
_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts")
_SCRIPT = f"""\
PATH=/usr/sbin:/usr/bin:/sbin:/bin
usr=$1 root=$2 binds=$3; shift 3
mount --bind "$usr" "$root/usr" &&
mount -o remount,bind,ro,nosuid,nodev "$root/usr" || exit
for node in {" ".join(NODES)}; do
    mount --bind "/dev/$node" "$root/dev/$node" || exit
done
while [ "$binds" -gt 0 ]; do
    mount --bind "$1" "$root/$2" || exit
    [ "$3" = rw ] || mount -o remount,bind,ro,nosuid,nodev "$root/$2" || exit
    shift 3
    binds=$((binds - 1))
done
exec 3<&0
trap 'exit 143' TERM
(read -r line; kill -TERM $$) <&3 >/dev/null 2>&1 &
chroot "$root" env -i PATH=$PATH HOME=/tmp TMPDIR=/tmp LC_ALL=C "$@" </dev/null 3<&- &
wait $! || exit {COMMAND_FAILED}
"""
"""Process 1 of its namespace: when it ends, all processes in there are killed. Nothing is written
to its standard input; its end means that the caller has ended."""

_NO_CAPABILITIES = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")

SAFE = re.compile(r"[\w./+@%-]+", re.ASCII)
"""Paths that kbuild can build in: it supports neither blanks nor colons."""
RESERVED = (*SYSTEM, "symvers", "module")
NOT_COPIED = {".git", ".svn", ".hg", "modules.order", "Module.symvers", ".tmp_versions"}


_MAPS = "7ffd00000000-7fff00000000 rw-p 00000000 00:00 0 [stack]\n"


@dataclass(frozen=True)
class Launcher:
    """The start of a sandbox's command line for this user, and the user that builds."""

    command: tuple[str, ...]
    uid: int
    """User that the build runs as, as the caller's user namespace numbers it."""
    privileges: tuple[str, ...]
    """Arguments of `setpriv` inside."""


def _become(uid: int) -> tuple[str, ...]:
    return (f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *_NO_CAPABILITIES)


def choose_launcher() -> Launcher:
    """Return a launcher: root directly, else a user namespace, else sudo. Raises `ImageError`."""
    if os.geteuid() == 0:
        direct = ("unshare", *_NAMESPACES)
        refused = _refused(direct)
        if refused is None:
            return Launcher(direct, NOBODY, _become(NOBODY))
        if NO_MOUNT_POINT in refused:
            raise failure("private mounts for the build", refused, 1)
        raise ImageError(
            "root may not make mount and process namespaces here",
            "run it outside this container, or give the container CAP_SYS_ADMIN",
        )
    own = ("unshare", "--user", "--map-root-user", *_NAMESPACES)
    if _refused(own) is None:
        return Launcher(own, os.getuid(), _NO_CAPABILITIES)
    if shutil.which("sudo") is not None:
        return Launcher(("sudo", "unshare", *_NAMESPACES), os.getuid(), _become(os.getuid()))
    raise ImageError(
        "building needs root, sudo or user namespaces, and this user has none of them",
        "run it as root, or install sudo",
    )


def _refused(command: Sequence[str]) -> str | None:
    """What `command` says when it cannot start a program; None if it can."""
    try:
        done = subprocess.run(
            [*command, "true"], env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode(errors="replace")


def add_maps(root: Path) -> None:
    """Add a file in place of `/proc/self/maps` to a root where /proc cannot be mounted.

    Linux's objtool does not start without a line for its stack (tools/objtool/signal.c).
    """
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/maps").write_text(_MAPS)


def prepare(root: Path) -> None:
    """Add to the empty folder `root` the folders that `run` needs."""
    (root / "usr").mkdir()
    for name in MERGED:
        (root / name).symlink_to(f"usr/{name}")
    (root / "dev").mkdir()
    for name in NODES:
        (root / "dev" / name).touch()
    add_maps(root)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


@dataclass(frozen=True)
class Bind:
    """A folder of this machine that a build sees as `inside`, a path below its root."""

    folder: Path
    inside: str
    writable: bool = False

    @property
    def words(self) -> tuple[str, str, str]:
        """The arguments of `_SCRIPT`."""
        return str(self.folder), self.inside, "rw" if self.writable else "ro"


def run(
    launcher: Launcher,
    toolchain: Path,
    root: Path,
    command: Sequence[str],
    binds: Sequence[Bind] = (),
) -> tuple[bool, str]:
    """Run `command` inside `root` (see `prepare`) with `/usr` of `toolchain` and the `binds`.

    Returns whether it succeeded, and its standard output and error together. Raises `ImageError`
    when the sandbox itself cannot be started. Nothing runs or is mounted afterwards.
    """
    inside = ["setpriv", *launcher.privileges, *command]
    mounts = [word for bind in binds for word in bind.words]
    start = [str(toolchain / "usr"), str(root), str(len(binds)), *mounts]
    words = ["sh", "-c", _SCRIPT, "sandbox", *start, *inside]
    with subprocess.Popen(
        [*launcher.command, *words],
        stdin=subprocess.PIPE,  # open until this process ends: then the sandbox ends, too
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=launcher.command[0] != "sudo",  # sudo asks on the terminal
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            output = process.stdout.read().decode(errors="replace")
        finally:
            process.stdin.close()
            process.wait()
    if process.returncode not in (0, COMMAND_FAILED):
        if NO_MOUNT_POINT in output:
            raise failure("private mounts for the build", output, process.returncode)
        last = (output.strip().splitlines() or [f"status {process.returncode}"])[-1]
        raise ImageError(f"the build's sandbox failed: {last}", "see that message")
    return process.returncode == 0, output


def sandbox_path(folder: Path) -> Path:
    """Return the path that `folder` is copied to, relative to the sandbox's root.

    Its own path where that is possible, so that messages, absolute paths and headers in
    neighbouring folders are the same inside; else a folder in `module`.
    """
    inside = folder.relative_to("/")
    if SAFE.fullmatch(str(inside)) and inside.parts and inside.parts[0] not in RESERVED:
        return inside
    return Path("module") / re.sub(r"[^\w.+-]", "_", folder.name or "root", flags=re.ASCII)


def copy_source(source: Path, target: Path) -> None:
    """Copy a folder, with links as they are and without the products of an earlier build.

    A link to a file outside of the folder has no target in the sandbox, so the build cannot read
    files that only this user may read. Raises `ImageError`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_unwanted, dirs_exist_ok=True)
    except shutil.Error as error:
        first = error.args[0][0]
        raise ImageError(f"cannot copy {first[0]}: {first[2]}", "make it readable") from error
    except OSError as error:
        raise ImageError(
            f"cannot copy {error.filename or source}: {error.strerror}",
            "make it readable, or name a roomier folder in TMPDIR",
        ) from error


def _unwanted(folder: str, names: list[str]) -> set[str]:
    """Products of kbuild (each has its `.NAME.cmd`), version control, and device files."""
    known = set(names)
    return {
        name
        for name in names
        if name in NOT_COPIED
        or name.endswith((".ko", ".mod.c"))
        or (name.startswith(".") and name.endswith(".cmd"))
        or f".{name}.cmd" in known
        or not _copyable(os.lstat(os.path.join(folder, name)).st_mode)
    }


def _copyable(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def make_writable_by(tree: Path, uid: int) -> None:
    """Make a private copy writable by the user `uid`, who builds; as root also owned by it."""
    for folder, _, names in os.walk(tree):
        for path in (Path(folder), *(Path(folder) / name for name in names)):
            if path.is_symlink():
                continue
            path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
            if os.geteuid() == 0:
                os.chown(path, uid, uid)


def plain_files(tree: Path) -> list[Path]:
    """Plain files below `tree`, without links, whose targets the build has chosen."""
    return sorted(
        path
        for folder, _, names in os.walk(tree)
        for path in (Path(folder) / name for name in names)
        if stat.S_ISREG(path.lstat().st_mode)
    )
