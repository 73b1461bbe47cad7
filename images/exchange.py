"""The cache as one file for another machine: what this version of bluebridge runs from.

An archive by the programs tar, which keeps the holes of snapshots, and zstd. In front of it a frame
that zstd skips (RFC 8878, 3.1.2) says what is in it, so that an unsuitable file is refused before
anything is read; another one behind it has the digest of all before, so that a damaged file is
refused before anything is unpacked. What holds for one machine only, such as whether KVM works
there, is not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import bluebridge
from bluebridge.compiled import wanted
from bluebridge.hot_modules import DEVICE
from bluebridge.images import guest_build
from bluebridge.images.apt import NotRemembered
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME
from bluebridge.images.device_build import OBJECTS
from bluebridge.images.host import as_root
from bluebridge.images.overlay import code_key
from bluebridge.images.recipes.compiler import CompilerRecipe
from bluebridge.images.recipes.libvfio_user import LibvfioUserRecipe
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError, failure, of_system, step

FORMAT = 2
"""Raise it when earlier versions cannot read the file."""
_SKIPPED = struct.Struct("<II")
"""The start of a frame that zstd skips: `_MAGIC` and the length of what follows, in bytes."""
_MAGIC = 0x184D2A50
_DIGEST_BYTES = 32
_END = _SKIPPED.pack(_MAGIC, _DIGEST_BYTES)
_GZIP = b"\x1f\x8b"
"""How a file of format 1 begins."""
_LARGEST_MANIFEST = 1 << 20
_ENTRY = re.compile(r"[a-z][a-z0-9-]*-[0-9a-f]{16}")
_ANEW = "make it anew with `bluebridge cache export` of the version that imports it"
_AGAIN = "copy or export it again"


@dataclass(frozen=True)
class Manifest:
    """The head of an exported cache: format, version of bluebridge, artefacts, where it serves."""

    format: int
    bluebridge: str
    """The version that made it."""
    entries: list[str]
    """Names of folders in the cache."""
    versions: dict[str, list[str]]
    """The versions of Debian packages that these are made of, as `Packages` remembers them."""
    python: str
    """The version of Python for which the device server is compiled; empty if it is not."""
    libc: list[str]
    """Name and version of the C library with which libvfio-user is linked."""


def entries(artefacts: Artefacts, more: Sequence[Path] = ()) -> list[Path]:
    """Return the folders of the cache that this version uses, and those of `more`, sorted."""
    # The compiler takes a third of the room, and most that it is used for needs a mirror anyway.
    names = {*artefacts.recipes, *artefacts.on_demand} - {CompilerRecipe.name}
    found = {artefacts.present(name) for name in names}
    found |= {guest_build.present(artefacts.cache, code_key(HOME)), *more}
    if built := DEVICE.build():
        found.add(Path(built))
    return sorted(path for path in found if path and path.parent == artefacts.cache.root)


def pack(artefacts: Artefacts, folders: Sequence[Path], file: Path) -> None:
    """Write these folders of the cache to `file`, which appears whole or not at all.

    Raises `ImageError`.
    """
    _need_zstd()
    names = [folder.name for folder in folders]
    python = platform.python_version() if _compiled_device() in names else ""
    versions, libc = artefacts.packages.remembered(), [*platform.libc_ver()]
    told = Manifest(FORMAT, bluebridge.__version__, names, versions, python, libc)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    words = ["--create", "--sparse", "--format=posix", "--owner=0", "--group=0"]
    words += ["--use-compress-program=zstd -1 -T0", f"--exclude={OBJECTS}"]
    words += [f"--directory={artefacts.cache.root}", *names]
    with _errors(file), step(f"write {file}"):
        try:
            with aside.open("wb") as output:
                content = json.dumps(asdict(told)).encode()
                output.write(_SKIPPED.pack(_MAGIC, len(content)) + content)
                output.flush()
                if said := _tar(words, output):
                    raise failure(f"writing {file}", said, 1)
            with aside.open("r+b") as both:
                digest = hashlib.file_digest(both, "sha256").digest()
                both.write(_END + digest)
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
        names = _names_here(file, told)
        _need_zstd()
        with step(f"check {file}"):
            _check_digest(file)
        cache.need_room()
        words = ["--extract", "--use-compress-program=zstd", "--no-same-owner", f"--file={file}"]
        with cache.lock("import"), cache.build_folder("import") as new:
            with step(f"read {file}"):
                said = _tar([*words, f"--directory={new}"], None)
            if said or not all((new / name).is_dir() for name in names):
                raise _unpacking_failed(file, said)
            for name, here in names.items():
                if not (cache.root / here).exists():
                    (new / name).rename(cache.root / here)
                # Another checkout that builds would drop what is older than its own.
                cache.note_use(here.rpartition("-")[0], cache.root / here)
        artefacts.packages.remember(told.versions)
    return list(_notes(told, names))


def read_manifest(file: Path) -> Manifest:
    """Return what the first frame of `file` says; raises `ImageError` or OSError."""
    wrong = ImageError(f"{file} is no exported cache, or is damaged", _AGAIN)
    with file.open("rb") as opened:
        start = opened.read(_SKIPPED.size)
        if start.startswith(_GZIP):
            raise ImageError(f"{file} was made by an earlier version of bluebridge", _ANEW)
        if len(start) < _SKIPPED.size:
            raise wrong
        magic, length = _SKIPPED.unpack(start)
        if magic != _MAGIC or length > _LARGEST_MANIFEST:
            raise wrong
        content = opened.read(length)
    try:
        fields = json.loads(content)
        made = fields.get("format") if isinstance(fields, dict) else None
        if isinstance(made, int) and made != FORMAT:
            raise ImageError(f"{file} has format {made}; this version reads {FORMAT}", _ANEW)
        told = Manifest(**fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise wrong from error
    if not _plausible(told):
        raise wrong
    return told


def _check_digest(file: Path) -> None:
    """Raise `ImageError` unless the last frame of `file` has the digest of all before it."""
    with file.open("rb") as opened:
        left = os.fstat(opened.fileno()).st_size - len(_END) - _DIGEST_BYTES
        opened.seek(max(left, 0))
        end = opened.read()
        if not end.startswith(_END):
            raise ImageError(f"{file} is damaged: its end is missing", _AGAIN)
        opened.seek(0)
        digest = hashlib.sha256()
        while left and (content := opened.read(min(left, 1 << 20))):
            digest.update(content)
            left -= len(content)
    if end != _END + digest.digest():
        raise ImageError(f"{file} is damaged: its digest is another one", _AGAIN)


def _plausible(told: Manifest) -> bool:
    """Whether names and versions of a manifest have the form that they must have."""
    names, versions = told.entries, told.versions
    return (
        isinstance(names, list)
        and all(isinstance(name, str) and _ENTRY.fullmatch(name) for name in names)
        and isinstance(versions, dict)
        and all(isinstance(files, list) for files in versions.values())
        and all(isinstance(file, str) for files in versions.values() for file in files)
        and isinstance(told.libc, list)
        and [type(part) for part in told.libc] == [str, str]
    )


def _names_here(file: Path, told: Manifest) -> dict[str, str]:
    """Return the names that the entries of `file` have in the cache of this machine.

    Raises `ImageError` when it lacks one that this version wants of those package versions.
    """
    names = {name: name for name in told.entries}
    with tempfile.TemporaryDirectory() as empty:
        artefacts = Artefacts(Path(empty))
        artefacts.packages.remember(told.versions)
        for name, recipe in artefacts.recipes.items():
            here = there = f"{name}-{_key(recipe)}"
            if isinstance(recipe, LibvfioUserRecipe):
                there = f"{name}-{_key(recipe.linked_with(*told.libc))}"
            if there not in names:
                made = f"{file} was made by another state of bluebridge (it says {told.bluebridge})"
                raise ImageError(f"{made}: its {name} is not the one that this one uses", _ANEW)
            if isinstance(recipe, LibvfioUserRecipe) and _runs_here(told):
                names[there] = here
    return names


def _runs_here(told: Manifest) -> bool:
    """Whether this machine's C library runs what was linked with the one of the file's maker."""
    name, version = platform.libc_ver()
    made = told.libc
    return made[0] == name and _numbers(made[1]) <= _numbers(version)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def _notes(told: Manifest, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each part that this machine cannot use."""
    if not _runs_here(told):
        what = f"libvfio-user is linked with {' '.join(told.libc)}, which is newer than this one's"
        mend = LibvfioUserRecipe.mend()
        yield f"{what}; it is built here" + (f", after `{mend}`" if mend else "")
    if wanted() and _compiled_device() not in names:
        what = (
            f"compiled modules for Python {told.python}" if told.python else "no compiled modules"
        )
        mend = "`make setup` compiles it"
        yield f"the file has {what}; under this Python the device server runs interpreted; {mend}"


def _compiled_device() -> str:
    """Return the name, in a cache, of the compiled modules of these sources for this Python."""
    return f"compiled-{DEVICE.name}-{DEVICE.key()}"


def _key(recipe: Recipe) -> str | None:
    """Return the key of an artefact, None if it needs a package that is not remembered."""
    try:
        with recipe.packages.offline():
            return recipe.key()
    except NotRemembered:
        return None


def _need_zstd() -> None:
    if shutil.which("zstd") is None:
        raise ImageError("there is no zstd here", as_root("apt-get", "install", "-y", "zstd"))


def _tar(words: Sequence[str], output: IO[bytes] | None) -> str:
    """Run tar, which may write to `output`; return what it said when it failed, else nothing."""
    done = subprocess.run(
        ["tar", *words],
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=output or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
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
