"""When the cached libvfio-user is built anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache
from bluebridge.images.recipes import libvfio_user


@pytest.mark.parametrize("name", ["adopt.h", "layout_shim.c"])
def test_another_text_of_what_it_is_compiled_with_is_another_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    (tmp_path / "versions.json").write_text('{"source qemu/trixie": ["qemu.dsc"]}')
    cache = Cache(tmp_path)
    recipe = libvfio_user.LibvfioUserRecipe(cache, Packages(cache))
    before = recipe.key()
    assert recipe.key() == before
    (file,) = [path for path in (libvfio_user.ADOPT, libvfio_user.SHIM) if path.name == name]
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" " * (path == file))
    assert recipe.key() != before
