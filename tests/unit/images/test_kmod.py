"""`bluebridge kmod` up to the compiler: requests, the private copy, delivery, errors."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from bluebridge.host_tools import cli
from bluebridge.images.cache import Cache
from bluebridge.images.kmod import SCRATCH, WrongRequest, check, deliver, modinfo, scratch_folder
from bluebridge.images.report import ImageError
from bluebridge.images.sandbox import copy_source, make_writable_by, plain_files, sandbox_path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A module's folder after an earlier build in it, with links and a pipe."""
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    texts = ("Makefile", "x.c", "blob.o", "sub/y.h", ".git/HEAD")
    products = ("x.o", ".x.o.cmd", "x.ko", "x.mod.c", "modules.order", "Module.symvers")
    for name in (*texts, *products):
        (folder / name).write_text(name)
    (folder / "secret.h").symlink_to("/etc/hostname")
    (folder / "inner.h").symlink_to("sub/y.h")
    os.mkfifo(folder / "pipe")
    return folder


def state(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of change and digest of everything in a folder."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        digest = hashlib.sha256(content).hexdigest()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, digest)
    return found


def test_copy_leaves_products_and_the_source_alone(source: Path, tmp_path: Path) -> None:
    before = state(source)
    copy = tmp_path / "deep" / "copy"
    copy_source(source, copy)
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()}
    assert names == {"Makefile", "x.c", "blob.o", "sub/y.h", "secret.h", "inner.h"}
    assert (copy / "secret.h").readlink() == Path("/etc/hostname")
    assert (copy / "inner.h").read_text() == "sub/y.h"
    make_writable_by(copy, os.getuid())
    assert state(source) == before


def test_a_copy_can_be_written_though_the_source_cannot(source: Path, tmp_path: Path) -> None:
    (source / "x.c").chmod(0o444)
    (source / "sub").chmod(0o555)
    copy = tmp_path / "copy"
    copy_source(source, copy)
    make_writable_by(copy, os.getuid())
    assert stat.S_IMODE((copy / "sub").stat().st_mode) == 0o755
    assert stat.S_IMODE((copy / "x.c").stat().st_mode) == 0o644
    (source / "sub").chmod(0o755)


@pytest.mark.parametrize(
    ("folder", "inside"),
    [
        ("/home/u/x-1.0", "home/u/x-1.0"),
        ("/usr/src/x-1.0", "module/x-1.0"),
        ("/home/u/my module", "module/my_module"),
        ("/home/u:v/x", "module/x"),
        ("/home/ü/x", "module/x"),
        ("/", "module/root"),
    ],
)
def test_the_path_in_the_sandbox(folder: str, inside: str) -> None:
    assert sandbox_path(Path(folder)) == Path(inside)


def test_links_are_no_results(source: Path) -> None:
    names = [path.name for path in plain_files(source)]
    assert "secret.h" not in names and "inner.h" not in names and "pipe" not in names
    assert "y.h" in names


@pytest.mark.parametrize("words", [["frob"], ["M=/x"], ["MO=/x"], ["-C", "/"], ["-f/x"], ["X"]])
def test_arguments_that_are_not_assignments(source: Path, words: list[str]) -> None:
    with pytest.raises(WrongRequest, match="not allowed"):
        check(source, words)


def test_request(source: Path, tmp_path: Path) -> None:
    words = ("CONFIG_X=m", "KCFLAGS=-DA=1 -DB", "KCFLAGS+=-DC", "-j1", "V=1")
    link = tmp_path / "link"
    link.symlink_to(source)
    request = check(link, words, [source / "Module.symvers"], [source / "sub"])
    assert (request.folder, request.make_arguments) == (source, words)
    assert request.symvers == (source / "Module.symvers",)
    assert request.readable == (source / "sub",)


def test_symvers_in_two_ways(source: Path) -> None:
    with pytest.raises(WrongRequest, match="exclude"):
        check(source, ["KBUILD_EXTRA_SYMBOLS=/x"], [source / "Module.symvers"])


def test_delivery_replaces_all_or_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    delivered = deliver({source / "x.ko": "x.ko", source / "x.c": "x.symvers"}, out)
    assert delivered == [out / "x.ko", out / "x.symvers"]
    assert stat.S_IMODE((out / "x.ko").stat().st_mode) == 0o644
    before = state(out)
    with pytest.raises(ImageError, match="cannot write"):
        deliver({source / "x.c": "x.ko", source / "absent": "y.ko"}, out)
    assert state(out)[str(out / "x.ko")] == before[str(out / "x.ko")]
    assert sorted(os.listdir(out)) == ["x.ko", "x.symvers"]


def test_two_modules_of_one_name(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"two modules are called x\.ko"):
        deliver({source / "x.ko": "x.ko", source / "x.c": "x.ko"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_scratch_of_a_killed_build_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache = Cache(tmp_path / "cache")
    (tmp_path / f"{SCRATCH}dead" / "root").mkdir(parents=True)
    with scratch_folder(cache) as first, scratch_folder(cache) as second:
        assert first.is_dir() and second.is_dir()
        assert not (tmp_path / f"{SCRATCH}dead").exists()
    assert not list(tmp_path.glob(f"{SCRATCH}*"))


def test_modinfo(tmp_path: Path) -> None:
    module = tmp_path / "x.ko"
    module.write_bytes(b"\x7fELF\0license=GPL\0depends=a,b\0vermagic=6.12 SMP \0")
    assert modinfo(module) == {"vermagic": "6.12 SMP ", "depends": "a,b"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kmod absent", "there is no folder absent"),
        ("kmod empty", "empty has no Makefile and no Kbuild"),
        ("kmod source --symvers absent", "there is no file absent"),
        ("kmod source --with absent", "there is no folder absent"),
        ("kmod source -- clean", "make argument 'clean' is not allowed"),
        ("cc absent.c", "there is no file absent.c; "),
        ("cc x.txt", "x.txt is no C source; "),
        ("cc x.c source/y.c", "the sources are in several folders; "),
        ("cc x.c -o source", "source is a folder; "),
        ("cc x.c -o x.c", "x.c is a source; "),
    ],
)
def test_wrong_requests_are_one_line_and_status_2(
    source: Path,
    line: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(source.parent)
    Path("empty").mkdir()
    for name in ("x.c", "x.txt", "source/y.c"):
        Path(name).touch()
    assert cli.main(line.split()) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"bluebridge: {message}")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_no_toolchain_and_no_network(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BLUEBRIDGE_MIRROR", "http://127.0.0.1:9/debian")
    before = state(source)
    assert cli.main(["kmod", str(source), "-o", str(tmp_path / "out")]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "images:" not in line]
    assert len(said) == 1
    assert "mirror cannot be reached" in said[0]
    assert state(source) == before
    assert not (tmp_path / "out").exists()
