"""Builds a user's kernel for guests: configured, built beside its source, cached by contents.

The source is bound read-only into a sandbox (`bluebridge.images.sandbox`) with a toolchain of
Debian's; what the build writes stays in a folder of the cache, so that the next build of the same
source makes only what changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bluebridge.images import kernel_config, kernel_needs, kernel_tree, sandbox
from bluebridge.images.cache import Cache, file_digest, key_of
from bluebridge.images.code_digest import code_digest
from bluebridge.images.kmod import ERRORS, BuildFailed, scratch_folder
from bluebridge.images.recipes.kernel_source import KernelToolsRecipe
from bluebridge.images.report import ImageError, say, step
from bluebridge.images.sandbox import Bind

MY, MY_DEBUG = "my", "my-debug"
"""The names of the kernel that was built last, with and without checks."""
NAME = "built-kernel"
LOG = "build.log"
_UNCLEAN = (".config", "include/config", "arch/x86/include/generated")
"""What a build inside of the source leaves there; kbuild then builds nowhere else."""
_BUILD = """\
set -e
own="make -C /source O=/build KBUILD_BUILD_USER=bluebridge KBUILD_BUILD_HOST=bluebridge"
if ! cmp -s /build/.guest.config /build/.guest.config.done; then
    $own KCONFIG_ALLCONFIG=/build/.guest.config allnoconfig
    cp /build/.guest.config /build/.guest.config.done
else
    $own olddefconfig
fi
$own KBUILD_BUILD_TIMESTAMP=@0 -j"$1" bzImage modules
rm -rf /build/.installed
$own INSTALL_MOD_PATH=/build/.installed INSTALL_MOD_STRIP=1 DEPMOD=true modules_install
"""


def build(source: Path, debug: bool, cache: Cache, tools: KernelToolsRecipe) -> Path:
    """Build the kernel of the tree `source`; return a folder with `bzImage` and `lib/modules`.

    A clean checkout of git whose contents were built before is not built again. Raises
    `BuildFailed` with the output, or another `ImageError`.
    """
    check(source)
    tree = _tree_of_git(source)
    identity = [code_digest(Path(__file__)), kernel_config.text(debug), tools.key()]
    name = f"{NAME}-debug" if debug else NAME
    if tree is not None and (found := cache.folder(name, key_of(tree, identity))).is_dir():
        return _remember(cache, debug, found)
    with kernel_tree.work(cache, source, debug) as work:
        made = _make(source, debug, cache, tools, work)
        key = key_of(tree or _contents(made), identity)
        return _remember(cache, debug, cache.ensure(name, key, lambda to: _keep(source, made, to)))


def check(source: Path) -> None:
    """Raise `ImageError` for a folder that is no kernel's source, or one that was built inside."""
    if not is_source(source):
        raise ImageError(
            f"{source} is no source of Linux", "name the top folder of a kernel's tree"
        )
    for name in _UNCLEAN:
        if (source / name).exists():
            mend = f"`make -C {source} mrproper`, or `up --kernel` with the kernel you built there"
            raise ImageError(f"{source} was built inside ({name} is there)", mend)


def is_source(folder: Path) -> bool:
    """Whether a folder is a kernel's tree."""
    return all((folder / name).exists() for name in ("Kbuild", "Kconfig", "arch/x86"))


def built(cache: Cache, debug: bool) -> Path | None:
    """Return the folder of the kernel that was built last; None if there is none."""
    name = MY_DEBUG if debug else MY
    link = cache.root / name
    # Earlier versions gave a kernel no release of its own: modules of the other one would load.
    of_it = any(path.name.endswith(f"-{name}") for path in link.glob("lib/modules/*"))
    return link.resolve() if of_it else None


def _make(source: Path, debug: bool, cache: Cache, tools: KernelToolsRecipe, work: Path) -> Path:
    """Build in `work`; return the folder that kbuild wrote."""
    launcher = sandbox.choose_launcher()
    compiler = tools.folder() / "root"
    output = work / "build"
    output.mkdir(parents=True, exist_ok=True)
    # Modules of one of these kernels do not fit the other, and are refused by the release.
    named = f'CONFIG_LOCALVERSION="-{MY_DEBUG if debug else MY}"\n'
    (output / ".guest.config").write_text(kernel_config.text(debug) + named)
    if os.geteuid() == 0:
        for path in (output, output / ".guest.config"):
            os.chown(path, launcher.uid, launcher.uid)
    with scratch_folder(cache) as root, step(f"build {source}"):
        sandbox.prepare(root)
        for name in ("source", "build"):
            (root / name).mkdir()
        binds = (Bind(source.resolve(), "source"), Bind(output, "build", writable=True))
        command = ["sh", "-c", _BUILD, "build", str(os.cpu_count() or 1)]
        done, printed = sandbox.run(launcher, compiler, root, command, binds)
    (work / LOG).write_text(printed)
    if not done:
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        telling = [line for sign in ERRORS for line in lines if sign in line] or lines[-1:]
        what = f"{source} does not build: {(telling or ['no reason given'])[0]}"
        raise BuildFailed(what, f"see the compiler's output in {work / LOG}", "")
    _tell_dropped(output, debug)
    return output


def _tell_dropped(output: Path, debug: bool) -> None:
    """Say which of the symbols asked for this version of Linux does not have."""
    have = kernel_needs.parse((output / ".config").read_text())
    dropped = [name for name in kernel_config.wanted(debug) if name not in have]
    if dropped:
        say(f"this kernel does without {', '.join(dropped)}")


def _keep(source: Path, output: Path, folder: Path) -> None:
    kernel_tree.note(folder, source.resolve(), output)
    shutil.copyfile(output / "arch/x86/boot/bzImage", folder / "bzImage")
    shutil.copyfile(output / ".config", folder / "config")
    shutil.copyfile(output / "System.map", folder / "System.map")
    modules = output / ".installed/lib/modules"
    links = shutil.ignore_patterns("build", "source")
    shutil.copytree(modules, folder / "lib/modules", symlinks=True, ignore=links)


def _remember(cache: Cache, debug: bool, folder: Path) -> Path:
    """Give a kernel the name under which guests are started with it."""
    name = MY_DEBUG if debug else MY
    aside = cache.root / f".{name}.{os.getpid()}"
    aside.unlink(missing_ok=True)
    aside.symlink_to(folder.name)
    aside.rename(cache.root / name)
    return folder


def _contents(output: Path) -> str:
    modules = sorted((output / ".installed").rglob("*.ko*"))
    return file_digest(output / "arch/x86/boot/bzImage", *modules)


def _tree_of_git(source: Path) -> str | None:
    """Return the name of a clean checkout's contents; None for anything else."""
    # A folder inside of another repository is no checkout of its own.
    if _git(source, "rev-parse", "--show-prefix") != "\n":
        return None
    if _git(source, "status", "--porcelain", "--untracked-files=no") != "":
        return None
    tree = _git(source, "rev-parse", "HEAD^{tree}")
    return tree.strip() if tree else None


def _git(source: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", source, *words], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
