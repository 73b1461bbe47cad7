"""The project's guest code as a second archive of the initrd, made at each start of a guest.

The kernel unpacks several archives of one initrd in turn, each starting at a multiple of four
bytes; so a change of guest code does not rebuild the guest's root. Compiled modules are in it if
they were built of exactly this code; building them is left to `make setup`, since it takes longer
than a start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bluebridge.images import guest_build
from bluebridge.images.cache import Cache, file_digest, key_of
from bluebridge.images.initramfs import ALIGNMENT, archive_of, compile_python
from bluebridge.images.report import say

HOME = "opt/bluebridge"
PACKAGES = ("bluebridge/guest", "bluebridge/device/layout")
COMPILED = "bluebridge/compiled_guest"
"""The folder in which `bluebridge.guest.compiled` looks for compiled modules."""
SINGLE = (
    *("bluebridge/__init__.py", "bluebridge/cache_root.py", "bluebridge/compiled.py"),
    *("bluebridge/hot_modules.py", "bluebridge/device/__init__.py"),
)


def build(destination: Path, root: Path, initrd: Path, more: Sequence[Path] = ()) -> Path:
    """Write `initrd`, the archives `more` and the guest code below `root` to `destination`.

    `initrd` is `Artefacts.initrd()`. Raises `bluebridge.images.report.ImageError`.
    """
    archive = overlay(root, initrd)
    with open(destination, "wb") as out:
        for part in (initrd, *more, archive):
            with open(part, "rb") as content:
                shutil.copyfileobj(content, out, 1 << 20)
            out.write(bytes(-out.tell() % ALIGNMENT))
    return destination


def overlay(root: Path, initrd: Path) -> Path:
    """Return the archive of the guest code with its byte code, cached by the code's contents."""
    files = sources(root)
    names = [path.relative_to(root).as_posix() for path in files]
    code = code_key(root)
    cache = Cache(initrd.parent.parent)
    compiled = guest_build.present(cache, code)
    key = key_of(code, initrd.parent.name, None if compiled is None else compiled.name)

    def make(folder: Path) -> None:
        tree = folder / "tree"
        for path, name in zip(files, names, strict=True):
            target = tree / HOME / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        compile_python(initrd.parent / "root", tree, tree / HOME)
        if compiled is None:
            say("guest code: runs interpreted; `make setup` compiles it")
        else:
            shutil.copytree(compiled, tree / HOME / COMPILED)
        (folder / "overlay.cpio").write_bytes(archive_of(tree))
        shutil.rmtree(tree)

    return cache.ensure("overlay", key, make) / "overlay.cpio"


def code_key(root: Path) -> str:
    """Return the key of the guest code below `root`, from names and contents of its files."""
    files = sources(root)
    return key_of([path.relative_to(root).as_posix() for path in files], file_digest(*files))


def sources(root: Path) -> list[Path]:
    """Return the Python files that the guest needs, sorted; `root` holds `bluebridge`."""
    return sorted(_sources(root))


def _sources(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from (root / package).rglob("*.py")
    for name in SINGLE:
        yield root / name
