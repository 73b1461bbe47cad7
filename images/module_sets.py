"""Sets of kernel modules that are not part of `make setup`: built when one is first requested."""

from __future__ import annotations

from pathlib import Path

from bluebridge.images.apt import NotRemembered, StaleVersions
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.module_build import ModuleRecipe


class ModuleSet:
    """The modules that a recipe of the kind `recipe` builds."""

    def __init__(self, recipe: type[ModuleRecipe], artefacts: Artefacts) -> None:
        self._recipe = recipe
        self._artefacts = artefacts

    def _made(self) -> ModuleRecipe:
        kernel = self._artefacts.recipes["kernel"]
        assert isinstance(kernel, KernelRecipe)
        return self._recipe(self._artefacts.cache, self._artefacts.packages, kernel)

    def folder(self) -> Path:
        """The folder with `NAME.ko` of each, built now if need be. Raises `ImageError`."""
        try:
            return self._made().folder()
        except StaleVersions:
            self._artefacts.packages.refresh()
            return self._made().folder()

    def present(self) -> Path | None:
        """The folder if it is in the cache; needs no network."""
        try:
            with self._artefacts.packages.offline():
                return self._made().present()
        except NotRemembered:
            return None
