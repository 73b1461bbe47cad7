"""Builds external kernel modules for the guest kernel.

The source folder is copied into a sandbox (`bluebridge.images.sandbox`) at its own path and built
there with kbuild against the headers of the guest kernel; only the finished modules are copied out.
Nothing is written to the source folder, and its Makefile never runs with privileges.
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

from bluebridge.images import kernel_tree, sandbox
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import Cache
from bluebridge.images.recipes.debian_kernels import USUAL, DebianKernel
from bluebridge.images.recipes.kernel_source import KernelToolsRecipe
from bluebridge.images.recipes.module_build import KbuildRecipe
from bluebridge.images.report import ImageError, say
from bluebridge.images.sandbox import Bind, copy_source, make_writable_by, plain_files, sandbox_path

ARGUMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\+?=|-j\d*$|-k$|--keep-going$")
SET_HERE = {"M", "MO", "O", "KBUILD_EXTMOD", "KBUILD_EXTMOD_OUTPUT", "KBUILD_OUTPUT"}
ERRORS = ("error:", "ERROR:", "***")
"""Marks of lines with a reason: of the compiler, of modpost and of make, in this order."""
SCRATCH = "bluebridge-kmod-"
SYMVERS = "Module.symvers"
_BUILD = """\
make "$@" modules &&
find "$0" -type f -name "*.ko" -exec cp {} {}.lines ";" -exec objcopy --strip-debug {} ";"
"""
_LINES = ".lines"
"""What the name of a module ends with that has the lines of its source."""


class BuildFailed(ImageError):
    """The module does not build; `output` is the whole output of make and the compiler."""

    def __init__(self, what: str, mend: str, output: str) -> None:
        super().__init__(what, mend)
        self.output = output


class WrongRequest(ImageError):
    """An invalid request; nothing was started."""


@dataclass(frozen=True)
class ModuleRequest:
    """The module to build; all paths are checked, absolute and without symbolic links."""

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
    kernel: DebianKernel | Path = USUAL,
) -> list[Path]:
    """Build the modules of `folder` and put the stripped `.ko` files into `output`.

    `make_arguments` are `NAME=VALUE` words (`CONFIG_X=m`, `KCFLAGS=...`). The symbols that the
    modules export are written to `output` as `FOLDER.symvers`, for `symvers` of another build.
    `kernel` is one of Debian's, or the folder of one that `kernel_build` built here.
    `output` is created if it is missing; each file is replaced atomically, none on failure. Raises
    `BuildFailed` and other `ImageError`s.
    """
    request = check(folder, make_arguments, symvers, readable)
    launcher = sandbox.choose_launcher()
    artefacts = artefacts or Artefacts()
    compiler, headers, binds = _toolchain(artefacts, kernel)
    with scratch_folder(artefacts.cache) as root:
        sandbox.prepare(root)
        tree = _copy_in(request, root)
        for top in root.iterdir():
            if top.name not in sandbox.SYSTEM:
                make_writable_by(top, launcher.uid)
        for bind in binds:
            (root / bind.inside).mkdir()
        command = _command(request, headers, f"/{tree.relative_to(root)}")
        done, printed = sandbox.run(launcher, compiler / "root", root, command, binds)
        files = plain_files(tree)
        modules = [path for path in files if path.suffix == ".ko"]
        _check_result(request, done, printed, modules)
        if isinstance(kernel, Path):
            _keep_lines(modules, kernel)
        names = {path: path.name for path in modules}
        if tree / SYMVERS in files and (tree / SYMVERS).stat().st_size:
            names[tree / SYMVERS] = f"{request.folder.name}.symvers"
        return [path for path in deliver(names, output) if path.suffix == ".ko"]


def _toolchain(
    artefacts: Artefacts, kernel: DebianKernel | Path
) -> tuple[Path, str, tuple[Bind, ...]]:
    """Return a folder with a compiler's root, the kernel's build folder in it, and what it needs.

    Raises `ImageError`.
    """
    if isinstance(kernel, DebianKernel):
        recipe = artefacts.for_kernel(KbuildRecipe, kernel)
        return artefacts.built(recipe), recipe.headers(), ()
    tools = artefacts.built(KernelToolsRecipe(artefacts.cache, artefacts.packages))
    return tools, "/build", kernel_tree.binds(kernel)


def _keep_lines(modules: Sequence[Path], kernel: Path) -> None:
    """Keep modules of a kernel built here as they were before their lines were stripped."""
    folder = kernel_tree.place(kernel) / kernel_tree.MODULES
    deliver({path.with_name(f"{path.name}{_LINES}"): path.name for path in modules}, folder)


def check(
    folder: Path,
    make_arguments: Sequence[str] = (),
    symvers: Sequence[Path] = (),
    readable: Sequence[Path] = (),
) -> ModuleRequest:
    """Return the checked request without building anything; raises `WrongRequest`."""
    source = _existing_folder(folder)
    if not any((source / name).is_file() for name in ("Kbuild", "Makefile")):
        raise WrongRequest(
            f"{folder} has no Makefile and no Kbuild", "name a module's source folder"
        )
    for word in make_arguments:
        match = ARGUMENT.match(word)
        if match is None or match["name"] in SET_HERE:
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
    return ModuleRequest(
        source,
        tuple(make_arguments),
        tuple(path.resolve() for path in symvers),
        tuple(_existing_folder(path) for path in readable),
    )


def _existing_folder(path: Path) -> Path:
    if not path.is_dir():
        raise WrongRequest(f"there is no folder {path}", "name one that exists")
    return path.resolve()


@contextmanager
def scratch_folder(cache: Cache) -> Iterator[Path]:
    """A temporary folder, readable for the user that builds.

    It is locked while its process lives, so that the next build removes that of a killed one.
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
    """Remove a scratch folder of this user unless the process that made it is alive."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _copy_in(request: ModuleRequest, root: Path) -> Path:
    """Copy source and symvers into the sandbox; return the path of the module's source there."""
    tree = root / sandbox_path(request.folder)
    for folder in request.readable:
        if folder == request.folder or request.folder in folder.parents:
            continue  # is part of the module's own folder
        if sandbox_path(folder) != folder.relative_to("/"):
            raise ImageError(f"the build cannot read {folder}", "copy it to a folder of your own")
        copy_source(folder, root / sandbox_path(folder))
    shutil.rmtree(tree, ignore_errors=True)  # a readable folder may contain it
    copy_source(request.folder, tree)
    if request.symvers:
        (root / "symvers").mkdir()
    for number, path in enumerate(request.symvers):
        shutil.copyfile(path, root / "symvers" / str(number))
    return tree


def _command(request: ModuleRequest, headers: str, there: str) -> list[str]:
    arguments = [f"-j{os.cpu_count() or 1}", "-C", headers, f"M={there}"]
    if request.symvers:
        names = " ".join(f"/symvers/{number}" for number in range(len(request.symvers)))
        arguments.append(f"KBUILD_EXTRA_SYMBOLS={names}")
    return ["sh", "-c", _BUILD, there, *arguments, *request.make_arguments]


def _check_result(
    request: ModuleRequest, done: bool, printed: str, modules: Sequence[Path]
) -> None:
    """Raise `BuildFailed` if the build failed or built no module, else print its warnings."""
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


def deliver(names: dict[Path, str], output: Path, mode: int = 0o644) -> list[Path]:
    """Copy files into `output` under new names: all as temporary files, then renamed."""
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
                os.fchmod(out.fileno(), mode)
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
    """Return the values of `fields` in a module's `.modinfo` section; an absent one is empty."""
    content = module.read_bytes()
    found = {}
    for name in fields:
        match = re.search(rb"\0" + re.escape(name.encode()) + rb"=([^\0]*)\0", content)
        found[name] = match[1].decode(errors="replace") if match else ""
    return found
