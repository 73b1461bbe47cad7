"""Folders of kernel builds, which are large: two stay, and none goes while it is built in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bluebridge.images.cache import Cache
from bluebridge.images.kernel_tree import work


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache with the finished trees of three sources; the third was built last."""
    cache = Cache(tmp_path / "cache")
    for seconds, name in enumerate(("first", "second", "third")):
        with work(cache, tmp_path / name, debug=False) as folder:
            (folder / "built").write_text(name)
        os.utime(folder, (seconds, seconds))
    return cache


def _left(cache: Cache) -> set[str]:
    return {path.read_text() for path in cache.root.glob("kernel-tree-*/built")}


def test_the_next_build_of_a_source_finds_what_the_last_one_left(
    cache: Cache, tmp_path: Path
) -> None:
    with work(cache, tmp_path / "third", debug=False) as folder:
        assert (folder / "built").read_text() == "third"
    with work(cache, tmp_path / "third", debug=True) as folder:
        assert not (folder / "built").exists()


def test_only_the_latest_two_stay(cache: Cache, tmp_path: Path) -> None:
    assert _left(cache) == {"second", "third"}
    with work(cache, tmp_path / "fourth", debug=False) as folder:
        (folder / "built").write_text("fourth")
    assert _left(cache) == {"third", "fourth"}


def test_one_that_is_built_in_stays(cache: Cache, tmp_path: Path) -> None:
    with work(cache, tmp_path / "second", debug=False) as held:
        os.utime(held, (1, 1))
        for name in ("fourth", "fifth"):
            with work(cache, tmp_path / name, debug=False):
                pass
        assert (held / "built").exists()
