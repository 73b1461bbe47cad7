"""Finds compiled modules in place of their sources, if they were built of exactly these sources.

A group is a set of hot modules that mypyc compiles together (`bluebridge.images.device_build`
builds it): one library of native code, and for each module a small extension module that takes its
part from it. A build lies in a folder whose name has a key of all sources that the native code was
made of, and of the Python it is for; another key means another folder, so a build of other sources
is never found. Without a build, or with `BLUEBRIDGE_PURE` in the environment, sources run.

Standard library only, and of it only what every Python has loaded at its start: this runs at each
start of a program, in guests, too.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec

from bluebridge.cache_root import cache_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

PACKAGE = os.path.dirname(os.path.abspath(__file__))
PURE = "BLUEBRIDGE_PURE"
SUFFIX = EXTENSION_SUFFIXES[0]
"""End of the file names of extension modules, which names the Python they are for."""
VERSION = 2
"""Raise it when the way of building changes."""
INSTALLED = "native"
"""Folder of an installed package's builds, in the package."""


class Group:
    """Modules that are compiled together: all that lie directly in `packages`, and `modules`.

    `sources` are the folders, below that of `bluebridge`, of all sources that the native code
    depends on. Of the modules `native` there is C beside the source, which does the same.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        packages: Sequence[str],
        modules: Sequence[str],
        native: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.sources = sources
        self._packages = packages
        self._modules = modules
        self.native = native
        self.library = f"bluebridge_{name}__mypyc"
        """Name of the module that holds the native code."""

    def key(self) -> str:
        """The key of the sources as they are now, and of this Python: 16 hex digits."""
        import hashlib

        digest = hashlib.sha256(
            f"{VERSION} {SUFFIX} {self._packages} {self._modules} {self.native}".encode()
        )
        for path in sorted(self._source_files()):
            with open(path, "rb") as file:
                content = file.read()
            name = os.path.relpath(path, PACKAGE)
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()[:16]

    def modules(self) -> list[str]:
        """Full names of all modules of the group, sorted."""
        found = set(self._modules)
        for package in self._packages:
            folder = os.path.join(PACKAGE, *package.split(".")[1:])
            names = [name[:-3] for name in os.listdir(folder) if name.endswith(".py")]
            found.update(f"{package}.{name}" for name in names if name != "__init__")
        return sorted(found)

    def holds(self, name: str) -> bool:
        """Whether the module called `name` is of the group, or its library."""
        return (
            name.rpartition(".")[0] in self._packages
            or name in self._modules
            or name in self.native
            or name == self.library
        )

    def _source_files(self) -> Iterator[str]:
        for folder in self.sources:
            for place, _, names in os.walk(os.path.join(PACKAGE, folder)):
                yield from (
                    os.path.join(place, name) for name in names if name.endswith((".py", ".c"))
                )

    def build(self) -> str | None:
        """The folder of the build of these sources, None if there is none."""
        folder = f"compiled-{self.name}-{self.key()}"
        for root in (os.path.join(PACKAGE, INSTALLED), cache_root()):
            place = os.path.join(root, folder)
            if os.path.isfile(os.path.join(place, self.library + SUFFIX)):
                return place
        return None


class CompiledFinder:
    """Finds the modules of one group in its build; finds nothing if there is none."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._searched = False
        self._build: str | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The extension module called `name`, if it is of the group and built."""
        if not self._group.holds(name):
            return None
        build = self._folder()
        if build is None:
            return None
        file = os.path.join(build, name + SUFFIX)
        if not os.path.isfile(file):
            return None
        return extension(name, file)

    def _folder(self) -> str | None:
        if not self._searched:
            self._searched = True
            try:
                self._build = self._group.build()
            except OSError:  # a source that cannot be read fails its own import with a better error
                self._build = None
        return self._build


def extension(name: str, file: str) -> ModuleSpec:
    """How to import the module `name` from an extension module's file."""
    spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
    spec.has_location = True
    return spec


def wanted() -> bool:
    """Whether compiled modules may be used: `BLUEBRIDGE_PURE` is not set, empty or 0."""
    return os.environ.get(PURE, "") in ("", "0")


def install(*groups: Group) -> None:
    """Let imports find the compiled modules of `groups`."""
    if wanted():
        sys.meta_path[:0] = [CompiledFinder(group) for group in groups]


def kind_of(group: Group) -> str:
    """`compiled` if this process runs native code of `group`, else `pure`."""
    return "compiled" if group.library in sys.modules else "pure"
