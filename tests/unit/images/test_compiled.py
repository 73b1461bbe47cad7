"""Compiled modules of the device: which build belongs to which sources, and life without one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bluebridge import compiled, hot_modules
from bluebridge.compiled import CompiledFinder, Group
from bluebridge.device.layout.buslog import Kind
from bluebridge.images import device_build, wheel
from bluebridge.images.cache import HOME, Cache
from bluebridge.images.extensions import hoisted
from bluebridge.images.report import ImageError

GROUP = Group("sample", sources=("sample",), packages=("bluebridge.sample",), modules=())


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only file of the group `sample`, in a package of its own, with a cache of its own."""
    package = tmp_path / "bluebridge"
    file = package / "sample" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text("x = 1\n")
    monkeypatch.setattr(compiled, "PACKAGE", str(package))
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path / "cache"))
    return file


def build(group: Group) -> Path:
    """A finished build, as far as a finder looks at it."""
    folder = Cache().folder(f"compiled-{group.name}", group.key())
    folder.mkdir(parents=True)
    for name in (group.library, "bluebridge.sample.one"):
        (folder / f"{name}{compiled.SUFFIX}").touch()
    return folder


def test_a_build_is_found_for_its_own_sources_only(source: Path) -> None:
    assert GROUP.build() is None
    folder = build(GROUP)
    assert GROUP.build() == str(folder)
    source.write_text("x = 2\n")
    assert GROUP.build() is None
    source.write_text("x = 1\n")
    assert GROUP.build() == str(folder)
    (source.parent / "two.py").touch()
    assert GROUP.build() is None


def test_a_build_for_another_python_is_not_found(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(GROUP)
    monkeypatch.setattr(compiled, "SUFFIX", ".cpython-399-x86_64-linux-gnu.so")
    assert GROUP.build() is None


def test_a_build_without_its_library_is_not_used(source: Path) -> None:
    """Somebody who cleans up, or a full disk, may leave such a build."""
    folder = build(GROUP)
    (folder / f"{GROUP.library}{compiled.SUFFIX}").unlink()
    assert GROUP.build() is None
    assert CompiledFinder(GROUP).find_spec("bluebridge.sample.one") is None


def test_only_modules_of_the_group_are_found(source: Path) -> None:
    folder = build(GROUP)
    finder = CompiledFinder(GROUP)
    spec = finder.find_spec("bluebridge.sample.one")
    assert spec is not None
    assert spec.origin == str(folder / f"bluebridge.sample.one{compiled.SUFFIX}")
    assert finder.find_spec("bluebridge.sample.two") is None
    assert finder.find_spec("bluebridge.other") is None


@pytest.mark.parametrize(("value", "expected"), [("", True), ("0", True), ("1", False)])
def test_the_environment_decides(
    value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compiled.PURE, value)
    assert compiled.wanted() is expected


def test_every_hot_module_exists() -> None:
    names = hot_modules.DEVICE.modules()
    assert len(names) > 50
    assert [n for n in names if not (HOME / f"{n.replace('.', '/')}.py").is_file()] == []


def compile_here(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m bluebridge.images.device_build` with an empty cache."""
    return subprocess.run(
        [sys.executable, "-m", "bluebridge.images.device_build"],
        cwd=HOME,
        env={**os.environ, "BLUEBRIDGE_CACHE": str(tmp_path / "cache"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    done = compile_here(tmp_path, PATH=str(tmp_path), CC="")
    assert done.returncode == 0
    assert "the device runs interpreted: there is no C compiler" in done.stderr
    assert not list((tmp_path / "cache").glob("compiled-*"))


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    done = compile_here(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "the device runs interpreted: " in done.stderr


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 1", "link"), ("echo No space left on device >&2; exit 1", "the disk is full")],
)
def test_a_compiler_that_fails_leaves_nothing(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cc"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    monkeypatch.setattr(device_build, "write_code", lambda group, folder: no_code(folder))
    cache = Cache(tmp_path / "cache")
    with pytest.raises(ImageError, match=reason):
        device_build.ensure(hot_modules.DEVICE, cache)
    assert not list(cache.root.glob("compiled-*"))
    assert not list(cache.root.glob(".compiled-*.build.*"))


def test_a_wheel_holds_its_build(tmp_path: Path) -> None:
    plain = tmp_path / "bluebridge-1.0-py3-none-any.whl"
    with zipfile.ZipFile(plain, "w") as file:
        file.writestr("bluebridge/__init__.py", "")
        file.writestr("bluebridge-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("bluebridge-1.0.dist-info/RECORD", "")
    build = tmp_path / "compiled-device-0123456789abcdef"
    build.mkdir()
    (build / f"one{compiled.SUFFIX}").write_bytes(b"code")
    made = wheel.with_build(plain, build, tmp_path)
    assert "-cp3" in made.name and "none-any" not in made.name
    with zipfile.ZipFile(made) as file:
        inside = f"bluebridge/{compiled.INSTALLED}/{build.name}/one{compiled.SUFFIX}"
        assert file.read(inside) == b"code"
        rows = file.read("bluebridge-1.0.dist-info/RECORD").decode().splitlines()
        assert [row.partition(",")[0] for row in rows] == file.namelist()
        assert "Root-Is-Purelib: false" in file.read("bluebridge-1.0.dist-info/WHEEL").decode()


def no_code(folder: Path) -> None:
    """Stands for mypyc: one extension module without C files."""
    folder.mkdir()
    (folder / device_build.EXTENSIONS).write_text('{"one": {"sources": [], "headers": []}}')


def test_enumerations_are_looked_up_once() -> None:
    source = (
        "from bluebridge.device.layout.buslog import Kind\n"
        "def kind(text: str) -> Kind:\n"
        "    # Kind.NOTE\n"
        "    return Kind.NOTE if text else Kind['IRQ']\n"
    )
    changed = hoisted(source)
    assert changed.count("\n") == source.count("\n")
    assert "return _Kind_NOTE_ if text else Kind['IRQ']" in changed
    names: dict[str, object] = {}
    exec(changed, names)
    kind = names["kind"]
    assert callable(kind)
    assert [kind("x").name, kind("").name] == ["NOTE", "IRQ"]
    assert hoisted("x = 1\n") == "x = 1\n"


def test_members_in_patterns_of_match_stay_what_they_are() -> None:
    """A plain name there takes any value."""
    source = (
        "from bluebridge.device.layout.buslog import Kind\n"
        "def name(kind):\n"
        "    match kind:\n"
        "        case Kind.NOTE | Kind.IRQ:\n"
        "            return 'told'\n"
        "        case _:\n"
        "            return Kind.RESET.name\n"
    )
    names: dict[str, object] = {}
    exec(hoisted(source), names)
    name = names["name"]
    assert callable(name)
    assert [name(kind) for kind in (Kind.NOTE, Kind.IRQ, Kind.MMIO_READ)] == [
        "told",
        "told",
        "RESET",
    ]


PATH_OF_MESSAGES = ("rdma", "ethernet", "mlx4/rings", "fabric/local.py", "fabric/sizes.py")


def test_no_call_on_the_path_of_messages_unpacks_its_arguments() -> None:
    """Native code would make it as Python does."""
    found = []
    for place in PATH_OF_MESSAGES:
        path = HOME / "device" / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and any(
                    isinstance(each, ast.Starred) for each in node.args
                ):
                    found.append(f"{file.relative_to(HOME)}:{node.lineno}")
    assert not found


def test_doctor_says_which_it_is() -> None:
    for pure, text in (("1", "interpreted, as BLUEBRIDGE_PURE says"), ("", "device")):
        done = subprocess.run(
            [sys.executable, "-m", "bluebridge.host_tools.cli", "doctor"],
            cwd=HOME,
            env={**os.environ, compiled.PURE: pure},
            capture_output=True,
            text=True,
            check=False,
        )
        assert text in done.stdout
