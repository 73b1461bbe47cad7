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
        """Return the folder with the built modules `NAME.ko`, built now if missing.

        Raises `ImageError`.
        """
        try:
            return self._made().folder()
        except StaleVersions:
            self._artefacts.packages.refresh()
            return self._made().folder()

    def present(self) -> Path | None:
        """Return the folder if it is in the cache, else None; needs no network."""
        try:
            with self._artefacts.packages.offline():
                return self._made().present()
        except NotRemembered:
            return None
