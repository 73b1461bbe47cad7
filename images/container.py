"""What a container image of the lab holds: a small Debian, bluebridge, and what set-up made.

Debian is of the release of the machine that makes the image, since libvfio-user and the compiled
modules were built there. The snapshot is packed, as layers keep no holes; `Snapshot` unpacks it.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bluebridge.images import oci, wheel
from bluebridge.images.apt import CODENAMES, Packages
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import Snapshot
from bluebridge.images.initramfs import compile_python
from bluebridge.images.recipes.container_root import RootRecipe
from bluebridge.images.report import ImageError, of_system, run, step
from bluebridge.images.unpack import prune

NAME = "localhost/bluebridge:latest"
CACHE = "var/cache/bluebridge"
UNUSED = (
    *("kernel-*/root", "guest-*/root"),
    *("qemu-*/usr/share/doc", "qemu-*/usr/share/man", "qemu-*/usr/share/locale"),
    *("qemu-*/usr/bin/qemu-system-i386", "qemu-*/usr/bin/*-microvm", "qemu-*/usr/bin/*-helper"),
    *("qemu-*/usr/lib/x86_64-linux-gnu/gconv", "qemu-*/usr/sbin"),
)
"""Parts of artefacts that only building needs."""
EXTRAS = "native,pytest"
PROGRAMS = {
    "bluebridge": """\
#!/usr/bin/python3
import sys
from bluebridge.host_tools.cli import main
sys.exit(main())
""",
    "pytest": """\
#!/bin/sh
exec python3 -m pytest "$@"
""",
    "lab": """\
#!/bin/sh
# Starts a program, or a command of bluebridge. It stays, to reap what pairs leave to process 1.
case ${1-sh} in
sh | bash | python3 | pytest | sleep | tail | */*) ;;
*) set -- bluebridge "$@" ;;
esac
trap 'kill -TERM "$child"' TERM
trap 'kill -INT "$child"' INT
"${@:-sh}" <&0 &
child=$!
wait "$child"
status=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; status=$?; done
exit "$status"
""",
}
"""Programs of `/usr/local/bin`; `lab` is what containers start."""


def release() -> str:
    """Return the name of this machine's release of Debian; raises `ImageError`."""
    known = platform.freedesktop_os_release()
    name = known.get("VERSION_CODENAME", "")
    if known.get("ID") != "debian" or name not in CODENAMES:
        said = known.get("PRETTY_NAME", "another system")
        raise ImageError(f"an image holds the Debian that made it, and this is {said}",
                         "make it on Debian 12 or 13, or in a container of one")  # fmt: skip
    return name


def build(
    artefacts: Artefacts,
    folders: Sequence[Path],
    snapshot: Snapshot,
    file: Path,
    *,
    compiled: bool = True,
) -> None:
    """Write the image to `file`: Debian, bluebridge, these folders of the cache, the snapshot.

    The device server in it is `compiled` or runs interpreted. Raises `ImageError`.
    """
    recipe = RootRecipe(artefacts.cache, Packages(artefacts.cache, release()))
    root = artefacts.built(recipe) / "root"
    with _scratch(artefacts.cache.root, file) as scratch:
        system, cache = scratch / "system", scratch / "cache"
        with step("bluebridge and its Python packages"):
            _link(root, system)
            made = scratch / "made"
            _install(root, system, wheel.make(made) if compiled else wheel.copied(made))
        with step("the cache"):
            _fill(artefacts, folders, snapshot, cache / CACHE)
        with step(f"write {file}"):
            layers = [oci.layer(system, scratch / "1"), oci.layer(cache, scratch / "2")]
            oci.write(scratch / "image", NAME, layers, {
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", f"BLUEBRIDGE_CACHE=/{CACHE}",
                        "LANG=C.UTF-8"],
                "Entrypoint": ["/usr/local/bin/lab"],
                "Cmd": ["bash"],
                "WorkingDir": "/work",
            })  # fmt: skip
            shutil.move(scratch / "image", file)


@contextmanager
def _scratch(place: Path, file: Path) -> Iterator[Path]:
    """Yield a folder on the disk of the cache, whose files are linked into it."""
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".image.") as folder:
            yield Path(folder)
    except OSError as error:
        raise of_system(error, file) from error


def _link(source: Path, target: Path) -> None:
    """Copy a tree by hard links."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def _install(root: Path, system: Path, source: Path) -> None:
    """Install a wheel or checkout, with what it requires, for the Python of the image."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (root / "usr/bin" / version).exists():
        raise ImageError(f"this is {version}, and not the Python of this release of Debian",
                         "make the environment with /usr/bin/python3")  # fmt: skip
    place = system / "usr/local/lib" / version / "dist-packages"
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target"]
    run([sys.executable, "-m", "pip", *words, place, f"{source}[{EXTRAS}]", "pip"],
        what="installing Python packages")  # fmt: skip
    shutil.rmtree(place / "bin")
    compile_python(root, system, place)
    for name, text in PROGRAMS.items():
        program = system / "usr/local/bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)


def _fill(artefacts: Artefacts, folders: Sequence[Path], snapshot: Snapshot, cache: Path) -> None:
    """Put what running needs of the cache into the folder `cache`, which any user may write."""
    cache.mkdir(parents=True)
    cache.chmod(0o1777)
    for folder in folders:
        # The device's build is in the wheel; other checkouts may have replaced this one meanwhile.
        if folder != snapshot.folder and not folder.name.startswith("compiled-device-"):
            _link(folder, cache / folder.name)
    prune(cache, UNUSED)
    snapshot.pack(cache)
    inside = Artefacts(cache)
    inside.packages.remember(artefacts.packages.remembered())
    (cache / ".apt.lock").unlink()
