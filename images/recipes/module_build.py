"""The base of recipes that build kernel modules: a Debian root with a toolchain, part by part.

Modules are built unchanged from Debian's kernel source against the headers of the same version, so
that they work with the kernel's own modules. The build runs in an unpacked Debian root, since the
kernel requires the compiler that it was built with: by chroot as root, else in a user namespace.
"""

from __future__ import annotations

import os
import shutil
import stat
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache
from bluebridge.images.code_digest import code_digest
from bluebridge.images.recipes.kernel import KernelRecipe, ModuleTree
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import ImageError, run
from bluebridge.images.sandbox import add_maps
from bluebridge.images.unpack import unpack, unpack_tar

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "TMPDIR": "/tmp"}
IN_NAMESPACE = 'mount --rbind /dev "$1/dev" && root=$1 && shift && exec chroot "$root" "$@"'
"""Device nodes cannot be made in a user namespace: the host's are bind-mounted for the process."""

TOOLS = (
    *("bash", "binutils", "coreutils", "dash", "diffutils", "findutils", "grep", "make", "mawk"),
    "sed",
)

UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")
SETPRIV = "util-linux"
"""Package of `setpriv`, which drops the build's privileges inside the root."""


def prepare(root: Path) -> None:
    """Add what builds need and maintainer scripts would have made: folders and `awk`."""
    for name in ("dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    add_maps(root)
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


def headers_folder(kernel: KernelRecipe) -> str:
    """Return the folder of the kernel's headers and Makefile, as a path inside the root."""
    return f"/usr/src/linux-headers-{kernel.release()}"


def toolchain_request(kernel: KernelRecipe) -> tuple[str, ...]:
    """Return the apt request for the kernel's headers, their compiler and the build tools."""
    return ("install", f"linux-headers-{kernel.release()}", *TOOLS)


@dataclass(frozen=True)
class Toolchain:
    """A root with headers and compiler, and the kernel's source as a tar archive."""

    root: Path
    archive: Path
    headers: str

    def source(self, prefix: str) -> Path:
        """Return the folder of the plain files whose kernel tree path begins with `prefix`."""
        work = self.root / "work"
        unpack_tar(self.archive, work, prefix)
        (tree,) = work.glob(f"*/{prefix.rpartition('/')[0]}")
        return tree

    def make(self, tree: Path, arguments: Sequence[str], what: str) -> None:
        """Build the modules of the external tree `tree`; raises `ImageError`."""
        command = ["make", "-C", self.headers, f"M={self.path(tree)}", *arguments, "modules"]
        inside(self.root, command, what=what)

    def deliver(self, module: Path, folder: Path) -> None:
        """Strip debug information from the file `module` and move it to `folder`."""
        command = ["objcopy", "--strip-debug", self.path(module)]
        inside(self.root, command, what=f"strip {module.name}")
        shutil.move(module, folder / module.name)

    def path(self, file: Path) -> str:
        """Return the path inside the root of `file`, which is below `root`."""
        return f"/{file.relative_to(self.root)}"


class ModuleRecipe(Recipe):
    """A recipe for a folder of kernel modules; subclasses give `name` and `build_modules`."""

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, kernel.packages)
        self.kernel = kernel
        self.name = kernel.named(type(self).name)

    @abstractmethod
    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        """Put the modules into `folder`; raises `ImageError`."""

    def inputs(self) -> Sequence[object]:
        return [
            self.packages.resolve(self._source()),
            self.packages.resolve(toolchain_request(self.kernel)),
            self.kernel.key(),
            code_digest(Path(__file__)),
        ]

    def _source(self) -> tuple[str, str]:
        return "download", self.kernel.source()

    def build(self, folder: Path) -> None:
        root, source = folder / "root", folder / "source"
        unpack(self.packages.fetch(toolchain_request(self.kernel)), root)
        prepare(root)
        unpack(self.packages.fetch(self._source()), source)
        (archive,) = (source / "usr/src").glob("linux-source-*.tar.xz")
        self.build_modules(Toolchain(root, archive, headers_folder(self.kernel)), folder)
        shutil.rmtree(source)
        shutil.rmtree(root)


@dataclass(frozen=True)
class Part:
    """One external module build: `folder` of the source tree, or one `file` of it alone."""

    folder: str
    arguments: tuple[str, ...] = ()
    file: str = ""
    after: str = ""
    """The folder of the part whose symbols it uses."""
    headers: str = ""
    """The folder of another part whose headers it includes."""


class PartsRecipe(ModuleRecipe):
    """Modules in one folder, stripped, as `NAME.ko`. Subclasses give `name` and `parts`.

    The folder also has the modules `stock` of the kernel's own package.
    """

    parts: tuple[Part, ...]
    stock: tuple[str, ...] = ()

    def inputs(self) -> Sequence[object]:
        return [*super().inputs(), code_digest(Path(__file__))]

    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        for part in self.parts:
            tree = toolchain.source(
                f"{part.folder}/{part.file}.c" if part.file else f"{part.folder}/"
            )
            if part.file:
                (tree / "Kbuild").write_text(f"obj-m := {part.file}.o\n")
            arguments = [*part.arguments, *_uses(toolchain, part)]
            toolchain.make(tree, arguments, f"build {part.file or part.folder}")
        for module in sorted((toolchain.root / "work").rglob("*.ko")):
            toolchain.deliver(module, folder)
        for path, content in self._stock_modules().items():
            (folder / path.name).write_bytes(content)

    def _stock_modules(self) -> dict[Path, bytes]:
        return ModuleTree(self.kernel.modules()).closure(self.stock)


def _uses(toolchain: Toolchain, part: Part) -> Iterable[str]:
    """What `make` is told of another part's symbols and headers."""
    if part.after:
        (symvers,) = toolchain.root.glob(f"work/*/{part.after}/Module.symvers")
        yield f"KBUILD_EXTRA_SYMBOLS={toolchain.path(symvers)}"
    if part.headers:
        (headers,) = toolchain.root.glob(f"work/*/{part.headers}")
        yield f"KCFLAGS=-I{toolchain.path(headers)}"


class KbuildRecipe(Recipe):
    """The root in `root/`, read-only after it was built."""

    name = "kbuild"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, kernel.packages)
        self.kernel = kernel
        self.name = kernel.named(type(self).name)

    def request(self) -> tuple[str, ...]:
        """The packages asked for."""
        return (*toolchain_request(self.kernel), SETPRIV)

    def headers(self) -> str:
        """The kernel's build folder, as a path inside the root."""
        return headers_folder(self.kernel)

    def inputs(self) -> Sequence[object]:
        return [self.packages.resolve(self.request())]

    def build(self, folder: Path) -> None:
        root = folder / "root"
        packages = self.packages.fetch(self.request())
        unpack(packages, root)
        prepare(root)
        for name in UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        if not (root / self.headers().lstrip("/") / "Makefile").exists():
            raise ImageError(f"{self.headers()} is not in its package", "report it")
        for package in packages:
            package.unlink(missing_ok=True)
