"""Building somebody's kernel modules for the guest kernel, outside the kernel's tree.

The folder is copied into a sandbox (`images.sandbox`) at its own path, built there with kbuild
against the headers of the guest kernel, and only the finished modules come back: nothing is
written to the user's folder, and no Makefile of a stranger ever runs with privileges.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images import sandbox
from bluebridge.images.apt import StaleVersions
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import Cache
from bluebridge.images.errors import ImageError
from bluebridge.images.kmod_tree import copy_source, hand_over, place, plain_files
from bluebridge.images.progress import say
from bluebridge.images.recipes.kbuild import KbuildRecipe
from bluebridge.images.recipes.kernel import KernelRecipe

ARGUMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\+?=|-j\d*$|-k$|--keep-going$")
OURS = {"M", "MO", "O", "KBUILD_EXTMOD", "KBUILD_EXTMOD_OUTPUT", "KBUILD_OUTPUT"}
ERRORS = ("error:", "ERROR:", "***")
"""What the compiler, modpost and make write before a reason, the most telling first."""
SCRATCH = "bluebridge-kmod-"
SYMVERS = "Module.symvers"
_BUILD = 'make "$@" modules && find "$0" -type f -name "*.ko" -exec objcopy --strip-debug {} ";"'


class BuildFailed(ImageError):
    """The module does not build; `output` is all that make and the compiler printed."""

    def __init__(self, what: str, mend: str, output: str) -> None:
        super().__init__(what, mend)
        self.output = output


class WrongRequest(ImageError):
    """What was asked for makes no sense; nothing was started."""


@dataclass(frozen=True)
class Request:
    """What to build: checked paths, all absolute and free of links."""

    folder: Path
    make_arguments: tuple[str, ...] = ()
    symvers: tuple[Path, ...] = ()
    """`Module.symvers` of modules whose symbols this one uses."""
    readable: tuple[Path, ...] = ()
    """More folders that the build may read (headers of another module), at their own paths."""


def build(
    folder: Path,
    output: Path,
    make_arguments: Sequence[str] = (),
    *,
    symvers: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    artefacts: Artefacts | None = None,
) -> list[Path]:
    """Build the modules of `folder` and put the stripped `.ko` files into `output`.

    `make_arguments` are `NAME=VALUE` words (`CONFIG_X=m`, `KCFLAGS=...`). What the modules export
    is written beside them as `FOLDER.symvers`, to be given as `symvers` of the next one. `output`
    is made if it is missing; its files are replaced in one step each, and not at all on failure.
    Raises `BuildFailed` and other `ImageError`s.
    """
    request = check(folder, make_arguments, symvers, readable)
    way = sandbox.choose_way()
    artefacts = artefacts or Artefacts()
    recipe = toolchain(artefacts)
    with _scratch(artefacts.cache) as root:
        sandbox.furnish(root)
        tree = _copy_in(request, root)
        for top in root.iterdir():
            if top.name not in sandbox.SYSTEM:
                hand_over(top, way.uid)
        command = _command(request, recipe.headers(), f"/{tree.relative_to(root)}")
        done, printed = sandbox.run(way, recipe.folder() / "root", root, command)
        files = plain_files(tree)
        modules = [path for path in files if path.suffix == ".ko"]
        _judge(request, done, printed, modules)
        names = {path: path.name for path in modules}
        if tree / SYMVERS in files and (tree / SYMVERS).stat().st_size:
            names[tree / SYMVERS] = f"{request.folder.name}.symvers"
        return [path for path in _deliver(names, output) if path.suffix == ".ko"]


def check(
    folder: Path,
    make_arguments: Sequence[str] = (),
    symvers: Sequence[Path] = (),
    readable: Sequence[Path] = (),
) -> Request:
    """The request, or a `WrongRequest` that says what is wrong with it. Builds nothing."""
    source = _existing_folder(folder)
    if not any((source / name).is_file() for name in ("Kbuild", "Makefile")):
        raise WrongRequest(
            f"{folder} has no Makefile and no Kbuild", "name a module's source folder"
        )
    for word in make_arguments:
        match = ARGUMENT.match(word)
        if match is None or match["name"] in OURS:
            raise WrongRequest(
                f"make argument {word!r} is not allowed", "give NAME=VALUE, as CONFIG_X=m"
            )
    for path in symvers:
        if not path.is_file():
            raise WrongRequest(
                f"there is no file {path}", "name the Module.symvers of another module"
            )
    if symvers and any(word.startswith("KBUILD_EXTRA_SYMBOLS") for word in make_arguments):
        raise WrongRequest(
            "--symvers and KBUILD_EXTRA_SYMBOLS exclude each other", "give one of them"
        )
    return Request(
        source,
        tuple(make_arguments),
        tuple(path.resolve() for path in symvers),
        tuple(_existing_folder(path) for path in readable),
    )


def _existing_folder(path: Path) -> Path:
    if not path.is_dir():
        raise WrongRequest(f"there is no folder {path}", "name one that exists")
    return path.resolve()


def toolchain(artefacts: Artefacts) -> KbuildRecipe:
    """The recipe of headers and compiler, made now if they are not in the cache."""
    for last in (False, True):
        kernel = artefacts.recipes["kernel"]
        assert isinstance(kernel, KernelRecipe)
        recipe = KbuildRecipe(artefacts.cache, artefacts.packages, kernel)
        try:
            recipe.folder()
            break
        except StaleVersions:
            if last:
                raise
            artefacts.packages.refresh()
    return recipe


@contextmanager
def _scratch(cache: Cache) -> Iterator[Path]:
    """A private folder, readable for the user that builds; gone afterwards.

    Its lock tells whether its maker lives, so that the next build clears up after a killed one.
    """
    with cache.lock("kmod"):
        for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
            _remove_stale(path)
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        root = folder / "root"
        root.mkdir()
        root.chmod(0o755)
        yield root
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_stale(folder: Path) -> None:
    """Remove a scratch folder of ours whose maker was killed."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _copy_in(request: Request, root: Path) -> Path:
    """Fill the sandbox; returns where the module's source is now."""
    tree = root / place(request.folder)
    for folder in request.readable:
        if folder == request.folder or request.folder in folder.parents:
            continue  # comes with the module's own folder
        if place(folder) != folder.relative_to("/"):
            raise ImageError(f"the build cannot read {folder}", "copy it to a folder of your own")
        copy_source(folder, root / place(folder))
    shutil.rmtree(tree, ignore_errors=True)  # where a readable folder holds the module's
    copy_source(request.folder, tree)
    if request.symvers:
        (root / "symvers").mkdir()
    for number, path in enumerate(request.symvers):
        shutil.copyfile(path, root / "symvers" / str(number))
    return tree


def _command(request: Request, headers: str, there: str) -> list[str]:
    arguments = [f"-j{os.cpu_count() or 1}", "-C", headers, f"M={there}"]
    if request.symvers:
        names = " ".join(f"/symvers/{number}" for number in range(len(request.symvers)))
        arguments.append(f"KBUILD_EXTRA_SYMBOLS={names}")
    return ["sh", "-c", _BUILD, there, *arguments, *request.make_arguments]


def _judge(request: Request, done: bool, printed: str, modules: Sequence[Path]) -> None:
    """Raise when the build failed or made nothing; pass its warnings on when it did not."""
    if not done:
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        telling = [line for sign in ERRORS for line in lines if sign in line] or lines[-1:]
        raise BuildFailed(
            f"{request.folder} does not build: {(telling or ['no reason given'])[0]}",
            "see the compiler's output above",
            printed,
        )
    if not modules:
        raise BuildFailed(
            f"{request.folder} built no module",
            "set obj-m in its Makefile, or give its options after --, as CONFIG_X=m",
            printed,
        )
    for line in printed.splitlines():
        if "warning:" in line.lower():
            say(line)


def _deliver(names: dict[Path, str], output: Path) -> list[Path]:
    """Copy files under new names into `output`: all of them aside first, then into place."""
    doubles = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if doubles:
        raise ImageError(f"two modules are called {doubles[0]}", "build their folders one by one")
    aside: dict[Path, Path] = {}
    try:
        output.mkdir(parents=True, exist_ok=True)
        for source, name in names.items():
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=output)
            aside[Path(temporary)] = output / name
            with open(handle, "wb") as out, open(source, "rb") as content:
                shutil.copyfileobj(content, out)
                os.fchmod(out.fileno(), 0o644)
        for temporary_path, final in aside.items():
            os.replace(temporary_path, final)
    except OSError as error:
        raise ImageError(
            f"cannot write {output}: {error.strerror}", "name another with -o"
        ) from error
    finally:
        for left in aside:
            with suppress(FileNotFoundError):
                left.unlink()
    return sorted(aside.values())


def modinfo(module: Path, fields: Iterable[str] = ("vermagic", "depends")) -> dict[str, str]:
    """Values of `fields` in a module's `.modinfo` section; an absent one is empty."""
    content = module.read_bytes()
    found = {}
    for name in fields:
        match = re.search(rb"\0" + re.escape(name.encode()) + rb"=([^\0]*)\0", content)
        found[name] = match[1].decode(errors="replace") if match else ""
    return found
