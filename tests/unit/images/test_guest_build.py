"""Compiled guest modules: which build belongs to which sources, and what happens without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bluebridge.guest import compiled
from bluebridge.guest.compiled import CompiledFinder
from bluebridge.images import __main__ as images
from bluebridge.images import guest_build
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME, Cache
from bluebridge.images.guest_build import MODULES
from bluebridge.images.host import as_root
from bluebridge.images.overlay import SINGLE, code_key, sources
from bluebridge.images.report import ImageError

CODE = "0123456789abcdef"


def guest_code(root: Path) -> Path:
    """A tree with the least of guest code; returns a file of it."""
    driver = "bluebridge/guest/bus/vfio.py"
    for name in (*SINGLE, driver, "bluebridge/device/layout/fields.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root / "bluebridge/guest/bus/vfio.py"


def test_every_hot_module_is_guest_code() -> None:
    shipped = {path.relative_to(HOME).with_suffix("").as_posix() for path in sources(HOME)}
    assert {name.replace(".", "/") for name in MODULES} <= shipped


def test_the_key_follows_every_change_of_the_sources(tmp_path: Path) -> None:
    file = guest_code(tmp_path)
    keys = [code_key(tmp_path)]
    file.write_text("x = 1\n")
    keys.append(code_key(tmp_path))
    file.rename(file.with_name("other.py"))
    keys.append(code_key(tmp_path))
    (tmp_path / "bluebridge/device/layout/fields.py").write_text("y = 1\n")
    keys.append(code_key(tmp_path))
    assert len({guest_build.key(key) for key in keys}) == 4
    (tmp_path / "bluebridge/guest/bus/notes.txt").write_text("not code")
    assert code_key(tmp_path) == keys[-1]


def test_a_build_is_found_for_its_own_sources_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLUEBRIDGE_PURE", raising=False)
    cache = Cache(tmp_path)
    assert guest_build.present(cache, CODE) is None
    made = cache.folder(guest_build.NAME, guest_build.key(CODE))
    made.mkdir()
    assert guest_build.present(cache, CODE) == made
    assert guest_build.present(cache, CODE[::-1]) is None
    monkeypatch.setenv("BLUEBRIDGE_PURE", "1")
    assert guest_build.present(cache, CODE) is None


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without programs; its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


def test_without_a_compiler_set_up_says_so_in_one_line(
    tmp_path: Path,
    no_compiler: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    artefacts = Artefacts(tmp_path / "cache")
    monkeypatch.setattr(Artefacts, "folder", lambda self, name: tmp_path)
    images.compile_guest(artefacts)
    told = capsys.readouterr().err
    assert told.splitlines()[-1] == (
        "images: guest code: runs interpreted: there is no C compiler; "
        f"to mend it: {as_root('apt-get', 'install', 'gcc')}"
    )
    assert not list((tmp_path / "cache").glob(f"*{guest_build.NAME}*-*"))


@pytest.mark.full
@pytest.mark.timeout(600)  # mypyc takes 17 s of processor time, before the compiler is asked
def test_a_broken_compiler_is_one_line(tmp_path: Path, no_compiler: Path) -> None:
    broken = no_compiler / "gcc"
    broken.write_text("#!/bin/sh\necho 'cc1: error: broken' >&2; exit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ImageError, match=r"compile .*\.c failed: cc1: error: broken"):
        guest_build.build(tmp_path, tmp_path)


def test_the_finder_knows_the_files_of_its_folder() -> None:
    finder = CompiledFinder("/somewhere", ["bluebridge.guest.bus.vfio.so", "README"])
    spec = finder.find_spec("bluebridge.guest.bus.vfio")
    assert spec is not None
    assert spec.origin == "/somewhere/bluebridge.guest.bus.vfio.so"
    assert finder.find_spec("bluebridge.guest.bus") is None
    assert finder.find_spec("README") is None


@pytest.mark.parametrize(("word", "found"), [("", True), ("0", True), ("1", False)])
def test_pure_leaves_imports_alone(
    word: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / compiled.FOLDER).mkdir()
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "guest" / "compiled.py"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("BLUEBRIDGE_PURE", word)
    compiled.install()
    assert isinstance(sys.meta_path[0], CompiledFinder) is found
