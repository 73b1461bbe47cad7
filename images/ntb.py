"""The NTB modules: not part of `make setup`, built when a bridge is first requested."""

from __future__ import annotations

from pathlib import Path

from bluebridge.images.apt import NotRemembered, StaleVersions
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.recipes.kernel import KernelRecipe
from bluebridge.images.recipes.ntb import NtbRecipe


def _recipe(artefacts: Artefacts) -> NtbRecipe:
    kernel = artefacts.recipes["kernel"]
    assert isinstance(kernel, KernelRecipe)
    return NtbRecipe(artefacts.cache, artefacts.packages, kernel)


def modules(artefacts: Artefacts) -> Path:
    """The folder with `NAME.ko` of each, built now if need be. Raises `ImageError`."""
    try:
        return _recipe(artefacts).folder()
    except StaleVersions:
        artefacts.packages.refresh()
        return _recipe(artefacts).folder()


def present(artefacts: Artefacts) -> Path | None:
    """The folder if it is in the cache; needs no network."""
    try:
        with artefacts.packages.offline():
            return _recipe(artefacts).present()
    except NotRemembered:
        return None
