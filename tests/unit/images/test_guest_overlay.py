"""Files laid over the guests' root: where they come to lie, and what no folder may hide."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.images.cache import Cache
from bluebridge.images.guest_overlay import check_names, overlay
from bluebridge.images.report import ImageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A guest's root with the links that Debian's has."""
    base = tmp_path / "guest-0" / "root"
    for name in ("usr/bin", "usr/lib", "etc", "run"):
        (base / name).mkdir(parents=True)
    (base / "bin").symlink_to("usr/bin")
    (base / "lib").symlink_to("usr/lib")
    (base / "etc/hosts").touch()
    return base


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's folder, empty."""
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def put(folder: Path, name: str, content: str = "x") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def archived(folder: Path, root: Path) -> bytes:
    """The archive of the user's folder."""
    return overlay(folder, Cache(root.parents[1] / "cache"), root).read_bytes()


def test_a_file_goes_through_the_links_of_the_root(folder: Path, root: Path) -> None:
    put(folder, "lib/mine/libmine.so", "content")
    found = archived(folder, root)
    # A folder `lib` in the archive would take the place of the link, and of every library.
    assert b"usr/lib/mine/libmine.so\0" in found and b"content" in found
    assert b"\0lib/" not in found and b"\0lib\0" not in found


def test_another_content_is_another_archive(folder: Path, root: Path) -> None:
    put(folder, "etc/mine", "one")
    cache = Cache(root.parents[1] / "cache")
    first = overlay(folder, cache, root)
    assert overlay(folder, cache, root) == first
    put(folder, "etc/mine", "two")
    assert overlay(folder, cache, root).parent.name != first.parent.name


@pytest.mark.parametrize(
    "name", ["init", "bin/python3", "usr/bin/dash", "opt/bluebridge/x", "lib/python3.13/os.py"]
)
def test_a_folder_that_hides_the_agent_is_refused(folder: Path, root: Path, name: str) -> None:
    put(folder, name)
    with pytest.raises(ImageError, match=f"has /{name}, which guests are reached by"):
        archived(folder, root)


def test_a_file_in_place_of_a_folder_is_refused(folder: Path, root: Path) -> None:
    put(folder, "usr/lib")
    with pytest.raises(ImageError, match="/usr/lib is a folder in the guest"):
        archived(folder, root)
    (folder / "usr/lib").unlink()
    put(folder, "etc/hosts/mine")
    with pytest.raises(ImageError, match="/etc/hosts is a file in the guest"):
        archived(folder, root)


def test_no_folder_is_one_line(tmp_path: Path, root: Path) -> None:
    with pytest.raises(ImageError, match="there is no such folder"):
        archived(tmp_path / "absent", root)


@pytest.mark.parametrize("name", ["-o", "Two Words", "../x", "x"])
def test_a_word_that_names_no_package_goes_to_no_apt(name: str) -> None:
    with pytest.raises(ImageError, match="no name of a package"):
        check_names([name])
