"""The package as pip installs it: its one name, its data, and its plugin in another project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bluebridge.images.cache import HOME
from bluebridge.images.unpack import unpack_tar
from bluebridge.images.wheel import copied

SOURCES = ("bluebridge", "device", "guest", "host_tools", "images", "pyproject.toml", "README.md")
DATA = (
    *("py.typed", "host_tools/analyzer/model/profiles/system-x.toml"),
    *("device/pyvfio_user/adopt.h", "device/pyvfio_user/layout_shim.c", "images/guest/init"),
    *("images/guest/bluebridge-mlx4", "images/guest/bluebridge-vfio"),
    *("host_tools/mmiotrace/whole_pages/Kbuild", "host_tools/web/static/index.html"),
    *("host_tools/web/static/main.js", "host_tools/web/static/page.css"),
    "host_tools/mmiotrace/whole_pages/whole_pages.c",
)
OFFLINE = ("--no-index", "--no-deps", "--disable-pip-version-check", "--quiet")
TESTS = """
from pathlib import Path

import bluebridge
import device
import guest
import host_tools
import images
import tests


def test_the_folders_are_ours():
    here = Path(__file__).parent.parent
    for module in (device, guest, host_tools, images, tests):
        assert Path(module.__file__).parent.parent == here
    assert device.NAME == "a device of another project"


def test_a_fixture_of_the_plugin(scratch):
    assert scratch.is_dir()
    (scratch / "note").write_text("x")


def test_the_package_is_the_wheel():
    assert bluebridge.__file__ == "{installed}/bluebridge/__init__.py"
"""


def _python(*words: str, cwd: Path, **environment: str) -> str:
    """Run Python with `words`; what it printed. Raises `AssertionError` with that if it failed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _build(source: Path, out: Path) -> Path:
    """The wheel of a source folder."""
    words = ("wheel", "--no-build-isolation", *OFFLINE, "--wheel-dir", str(out), str(source))
    _python("-m", "pip", *words, cwd=source.parent)
    (wheel,) = out.glob("*.whl")
    return wheel


def _names(wheel: Path) -> set[str]:
    """The files in a wheel, without its own description of itself."""
    with zipfile.ZipFile(wheel) as archive:
        names = (name for name in archive.namelist() if not name.endswith("/"))
        return {name for name in names if not name.partition("/")[0].endswith(".dist-info")}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout's sources: building leaves files beside them."""
    folder = tmp_path_factory.mktemp("checkout") / "source"
    folder.mkdir()
    for name in SOURCES:
        if (HOME / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(HOME / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(HOME / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return _build(checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as pip puts it there."""
    folder = tmp_path_factory.mktemp("installed") / "installed"
    words = ("install", *OFFLINE, "--target", str(folder), str(wheel))
    _python("-m", "pip", *words, cwd=folder.parent)
    return folder


def test_the_wheel_has_one_name_and_all_its_data(wheel: Path) -> None:
    names = _names(wheel)
    assert {name.partition("/")[0] for name in names} == {"bluebridge"}
    assert {f"bluebridge/{name}" for name in DATA} <= names
    for room in ("device", "guest", "host_tools", "images"):
        paths = {str(path.relative_to(HOME)) for path in (HOME / room).rglob("*.py")}
        assert {f"bluebridge/{path}" for path in paths} <= names


@pytest.mark.full
def test_the_source_distribution_gives_the_same_wheel(
    wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    """In it the folders are copies: archives of other systems know no symbolic links."""
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    _python("-c", code, str(tmp_path), cwd=checkout)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as stream:
        assert not any(member.issym() or member.islnk() for member in stream)
    unpack_tar(archive, tmp_path / "unpacked", prefix="")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert _names(_build(source, tmp_path / "again")) == _names(wheel)


@pytest.mark.full
def test_a_copy_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Two builds of one checkout, each of its own copy, do not meet."""
    assert _names(_build(copied(tmp_path / "copy"), tmp_path / "out")) == _names(wheel)


@pytest.mark.full
def test_a_project_may_have_folders_of_the_same_names(installed: Path, tmp_path: Path) -> None:
    """Its tests run with our plugin, found by its entry point, in a plain `python -m pytest`."""
    project = tmp_path / "project"
    for name in ("device", "guest", "host_tools", "images", "tests"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").touch()
    (project / "device" / "__init__.py").write_text('NAME = "a device of another project"\n')
    (project / "tests" / "test_mine.py").write_text(TESTS.format(installed=installed))
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    said = _python(*words, cwd=project, PYTHONPATH=str(installed))
    assert "3 passed" in said


def test_the_commands_of_an_installed_package(installed: Path, tmp_path: Path) -> None:
    code = "import sys; from bluebridge.host_tools.cli import main; sys.exit(main(sys.argv[1:]))"
    said = _python("-c", code, "--version", cwd=tmp_path, PYTHONPATH=str(installed))
    assert said == f"bluebridge {_version(installed)}\n"


def _version(installed: Path) -> str:
    """Return what the description of the installed package says."""
    (metadata,) = installed.glob("bluebridge-*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    return next(line.removeprefix("Version: ") for line in lines if line.startswith("Version: "))
