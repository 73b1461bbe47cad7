"""Checks what this machine has and lacks, with the command that mends each lack."""

from __future__ import annotations

import getpass
import json
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge import compiled, hot_modules
from bluebridge.images.accelerator import accelerator
from bluebridge.images.apt import debian_mirror
from bluebridge.images.artefacts import Artefacts, host_qemu
from bluebridge.images.host import NEEDS, as_root, install_words
from bluebridge.images.kvm_speed import DEVICE
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import tree_size

GIB = 1 << 30
DISK_NEEDED = 3 * GIB
MEMORY_NEEDED = 3 * GIB


@dataclass(frozen=True)
class Check:
    """One line of the doctor; `mend` is the command that mends a lack, empty when `ok`."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def checks(artefacts: Artefacts | None = None) -> list[Check]:
    """Return all checks of what `bluebridge` requires, in the order to mend it. Builds nothing."""
    artefacts = artefacts or Artefacts()
    return [
        _processor(),
        _python(),
        _memory(),
        _disk(artefacts.cache.root),
        *_packages(),
        _mirror(),
        *(_artefact(artefacts, name) for name in artefacts.recipes),
        _cache(artefacts.cache.root),
        _compiled(),
        _accelerator(artefacts),
    ]


def _processor() -> Check:
    machine, cores = platform.machine(), len(os.sched_getaffinity(0))
    ok = machine == "x86_64" and sys.platform == "linux"
    return Check("processor", ok, f"{machine}, {cores} cores", "" if ok else "use an x86-64 Linux")


def _python() -> Check:
    ok = sys.version_info >= (3, 11)
    return Check("Python", ok, platform.python_version(), "" if ok else "use Debian 12 or 13")


def _memory() -> Check:
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    ok = free >= MEMORY_NEEDED
    found = f"{free / GIB:.1f} GiB available"
    return Check("memory", ok, found, "" if ok else "end other programs: two guests want 3 GiB")


def _disk(root: Path) -> Check:
    folder = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    # Artefacts that exist need no more room.
    ok = free >= DISK_NEEDED or (root.exists() and any(root.glob("guest-*")) and free >= GIB // 4)
    found = f"{free / GIB:.1f} GiB free for {root}"
    return Check("disk", ok, found, "" if ok else "free 3 GiB, or set BLUEBRIDGE_CACHE elsewhere")


def _packages() -> list[Check]:
    return [
        Check(
            need.package,
            need.present(),
            need.purpose if need.present() else "not installed",
            "" if need.present() else as_root(*install_words([need])),
        )
        for need in NEEDS
    ]


def _mirror() -> Check:
    try:
        return Check("package mirror", True, debian_mirror())
    except ImageError as error:
        return Check("package mirror", False, error.what, error.mend)


def _artefact(artefacts: Artefacts, name: str) -> Check:
    host = host_qemu() if name == "qemu" else None
    if host is not None:
        return Check(name, True, f"{host.command[0]} {host.version}, with vfio-user-pci")
    present = artefacts.present(name)
    if present is None:
        return Check(name, False, "not built yet", "make setup")
    return Check(name, True, str(present))


def _cache(root: Path) -> Check:
    """Return a check that tells what the cache holds by part, the largest first; always met."""
    sizes: Counter[str] = Counter()
    for path in root.iterdir() if root.exists() else ():
        sizes[path.name.rpartition("-")[0] or path.name] += tree_size(path)
    parts = ", ".join(
        f"{name} {size / 1e6:.0f}" for name, size in sizes.most_common() if size > 5e5
    )
    text = f"{sizes.total() / 1e6:.0f} MB: {parts}; `python -m bluebridge.images clean` removes all"
    return Check("cache", True, text if sizes else "empty")


def _compiled() -> Check:
    """Return a check of the compiled build, which is always met: all works without it as well."""
    if not compiled.wanted():
        return Check("device", True, f"interpreted, as {compiled.PURE} says")
    found = hot_modules.DEVICE.build()
    return Check("device", True, f"compiled: {found}" if found else "interpreted; make setup")


def _accelerator(artefacts: Artefacts) -> Check:
    if not DEVICE.exists():
        return Check("accelerator", True, "tcg (no /dev/kvm)")
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        join = as_root("adduser", getpass.getuser(), "kvm")
        return Check("accelerator", True, f"tcg (/dev/kvm is not ours: {join})")
    if any(artefacts.present(name) is None for name in ("qemu", "kernel")):
        return Check("accelerator", True, "not probed yet, `make setup` does")
    kind = accelerator(artefacts)
    return Check("accelerator", True, kind if kind == "kvm" else "tcg (KVM ran no guest here)")


def main(more: Sequence[Check] = (), *, as_json: bool = False) -> int:
    """Print the checks and `more` as a table, or as JSON; return 0 when nothing is missing."""
    found = [*checks(), *more]
    ok = all(check.ok for check in found)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in found]}))
    else:
        _print(found)
    return 0 if ok else 1


def _print(found: Sequence[Check]) -> None:
    width = max(len(check.name) for check in found)
    for check in found:
        print(f"{'ok     ' if check.ok else 'MISSING'} {check.name:<{width}}  {check.found}")
        if not check.ok:
            print(f"{'':>{width + 8}}  mend: {check.mend}")
