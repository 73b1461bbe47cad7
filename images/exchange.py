"""The cache as one file for another machine: what this version of bluebridge runs from.

A compressed tar archive, by the programs tar and gzip, which keep the holes of snapshots. Its first
member says what is in it, so that an unsuitable file is refused before anything is unpacked. What
holds for one machine only, such as whether KVM works there, is not in it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import bluebridge
from bluebridge.hot_modules import DEVICE
from bluebridge.images import guest_build
from bluebridge.images.apt import NotRemembered
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME
from bluebridge.images.device_build import OBJECTS
from bluebridge.images.overlay import code_key
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError, failure, of_system, step

FORMAT = 1
"""Raise it when earlier versions cannot read the file."""
MANIFEST = "bluebridge-cache.json"
"""Name of the first member, a `Manifest` in JSON."""
HOST_BOUND = "libvfio-user"
"""The artefact that is linked with the C library of the machine that built it."""
_LARGEST_MANIFEST = 1 << 20
_ENTRY = re.compile(r"[a-z][a-z0-9-]*-[0-9a-f]{16}")
_ANEW = "make it anew with `bluebridge cache export` of the version that imports it"
_AGAIN = "copy or export it again"


@dataclass(frozen=True)
class Manifest:
    """What an exported cache says of itself."""

    format: int
    bluebridge: str
    """The version that made it."""
    entries: list[str]
    """Names of folders in the cache."""
    versions: dict[str, list[str]]
    """The versions of Debian packages that these are made of, as `Packages` remembers them."""


def entries(artefacts: Artefacts, more: Sequence[Path] = ()) -> list[Path]:
    """Return the folders of the cache that this version uses, and those of `more`, sorted."""
    found = {artefacts.present(name) for name in (*artefacts.recipes, *artefacts.on_demand)}
    found |= {guest_build.present(artefacts.cache, code_key(HOME)), *more}
    if built := DEVICE.build():
        found.add(Path(built))
    return sorted(path for path in found if path and path.parent == artefacts.cache.root)


def pack(artefacts: Artefacts, folders: Sequence[Path], file: Path) -> None:
    """Write these folders of the cache to `file`, which appears whole or not at all.

    Raises `ImageError`.
    """
    names = [folder.name for folder in folders]
    told = Manifest(FORMAT, bluebridge.__version__, names, artefacts.packages.remembered())
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with _errors(file), tempfile.TemporaryDirectory() as scratch, step(f"write {file}"):
        Path(scratch, MANIFEST).write_text(json.dumps(asdict(told), indent=1))
        words = ["--create", "--sparse", "--format=posix", "--owner=0", "--group=0"]
        words += ["--use-compress-program=gzip -1", f"--exclude={OBJECTS}", f"--file={aside}"]
        words += [f"--directory={scratch}", MANIFEST, f"--directory={artefacts.cache.root}", *names]
        try:
            if said := _tar(words):
                raise failure(f"writing {file}", said, 1)
            aside.rename(file)
        finally:
            aside.unlink(missing_ok=True)


def unpack(artefacts: Artefacts, file: Path) -> list[str]:
    """Add to the cache what `file` has; return a note for each part that does not fit this machine.

    Raises `ImageError` and leaves the cache as it was when the file is damaged, or was made by a
    version of bluebridge with other guests.
    """
    cache = artefacts.cache
    with _errors(file):
        told = read_manifest(file)
        lacking = _lacking(told)
        if others := [name for name in lacking if name != HOST_BOUND]:
            made = f"{file} was made by another state of bluebridge (it says {told.bluebridge})"
            raise ImageError(f"{made}: its {others[0]} is not the one that this one uses", _ANEW)
        cache.need_room()
        words = ["--extract", "--gzip", "--no-same-owner", f"--file={file}"]
        with cache.lock("import"), tempfile.TemporaryDirectory(dir=cache.root, prefix=".i") as new:
            with step(f"read {file}"):
                # All of it is unpacked, whatever is there already: damage shows at the end.
                said = _tar([*words, f"--directory={new}"])
            if said or not all(Path(new, name).is_dir() for name in told.entries):
                raise _unpacking_failed(file, said)
            for name in told.entries:
                if not (cache.root / name).exists():
                    Path(new, name).rename(cache.root / name)
        artefacts.packages.remember(told.versions)
    return [f"{name} is for another release of Debian; it is built here" for name in lacking]


def read_manifest(file: Path) -> Manifest:
    """Return what the first member of `file` says; raises `ImageError` or OSError."""
    wrong = ImageError(f"{file} is no exported cache, or is damaged", _AGAIN)
    try:
        with tarfile.open(file, "r|gz") as archive:
            member = archive.next()
            content = None if member is None else archive.extractfile(member)
            if member is None or member.name != MANIFEST or content is None:
                raise wrong
            told = Manifest(**json.loads(content.read(_LARGEST_MANIFEST)))
    except (tarfile.TarError, zlib.error, EOFError, ValueError, TypeError) as error:
        raise wrong from error
    if told.format != FORMAT:
        raise ImageError(f"{file} has format {told.format}; this version reads {FORMAT}", _ANEW)
    if not _plausible(told):
        raise wrong
    return told


def _plausible(told: Manifest) -> bool:
    """Whether names and versions of a manifest have the form that they must have."""
    names, versions = told.entries, told.versions
    return (
        isinstance(names, list)
        and all(isinstance(name, str) and _ENTRY.fullmatch(name) for name in names)
        and isinstance(versions, dict)
        and all(isinstance(files, list) for files in versions.values())
        and all(isinstance(file, str) for files in versions.values() for file in files)
    )


def _lacking(told: Manifest) -> list[str]:
    """Return the artefacts that this version wants of those package versions and are not there."""
    with tempfile.TemporaryDirectory() as empty:
        artefacts = Artefacts(Path(empty))
        artefacts.packages.remember(told.versions)
        keys = {name: _key(recipe) for name, recipe in artefacts.recipes.items()}
    return [name for name, key in keys.items() if f"{name}-{key}" not in told.entries]


def _key(recipe: Recipe) -> str | None:
    """Return the key of an artefact, None if it needs a package that is not remembered."""
    try:
        with recipe.packages.offline():
            return recipe.key()
    except NotRemembered:
        return None


def _tar(words: Sequence[str]) -> str:
    """Run tar; return what it said when it failed, else an empty text."""
    done = subprocess.run(
        ["tar", *words],
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr or f"status {done.returncode}"


def _unpacking_failed(file: Path, said: str) -> ImageError:
    if "No space left on device" in said:
        return failure(f"unpacking {file}", said, 1)
    first = next((line for line in said.splitlines() if line), "parts are missing")
    return ImageError(f"{file} is damaged: {first}", _AGAIN)


@contextmanager
def _errors(file: Path) -> Iterator[None]:
    """Raise OSErrors as `ImageError` with one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise ImageError(f"there is no {error.filename}", "look at the path") from error
    except OSError as error:
        raise of_system(error, file) from error
