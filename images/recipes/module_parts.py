"""A set of kernel modules built part by part, each part an external module build of its own.

A part is a folder of the kernel's source, or one file of it. A part that uses symbols of another is
built after it, against the symbols that the other exports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.cache import file_digest
from bluebridge.images.modules import ModuleTree
from bluebridge.images.recipes.module_build import ModuleRecipe, Toolchain


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
        return [*super().inputs(), file_digest(Path(__file__))]

    def build_modules(self, toolchain: Toolchain, folder: Path) -> None:
        for part in self.parts:
            _build_part(toolchain, part)
        for module in sorted((toolchain.root / "work").rglob("*.ko")):
            toolchain.deliver(module, folder)
        for path, content in self._stock_modules().items():
            (folder / path.name).write_bytes(content)

    def _stock_modules(self) -> dict[Path, bytes]:
        release = self.kernel.release()
        modules = ModuleTree(self.kernel.folder() / "root/usr/lib/modules" / release)
        return modules.closure(self.stock)


def _build_part(toolchain: Toolchain, part: Part) -> None:
    tree = toolchain.source(f"{part.folder}/{part.file}.c" if part.file else f"{part.folder}/")
    if part.file:
        (tree / "Kbuild").write_text(f"obj-m := {part.file}.o\n")
    arguments = [*part.arguments, *_uses(toolchain, part)]
    toolchain.make(tree, arguments, f"build {part.file or part.folder}")


def _uses(toolchain: Toolchain, part: Part) -> Iterable[str]:
    """What `make` is told of another part's symbols and headers."""
    if part.after:
        (symvers,) = toolchain.root.glob(f"work/*/{part.after}/Module.symvers")
        yield f"KBUILD_EXTRA_SYMBOLS={toolchain.path(symvers)}"
    if part.headers:
        (headers,) = toolchain.root.glob(f"work/*/{part.headers}")
        yield f"KCFLAGS=-I{toolchain.path(headers)}"
