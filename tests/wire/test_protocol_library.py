"""The check that libvfio-user is the one its declarations were written for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bluebridge.device.pyvfio_user import Context, Library, LibraryError, load
from bluebridge.device.pyvfio_user._declarations import SHIM
from bluebridge.device.pyvfio_user._library import read_layout


def test_layouts_agree(vfio_user_library: Path) -> None:
    library = load()
    real = read_layout(vfio_user_library.with_name(SHIM))
    assert library.expected_layout().items() <= real.items()
    assert len(library.expected_layout()) > 30


def test_another_layout_is_refused_in_one_line(vfio_user_library: Path, tmp_path: Path) -> None:
    shutil.copy(vfio_user_library, tmp_path / "libvfio-user.so")
    source = tmp_path / "shim.c"
    source.write_text(
        "struct entry { const char *name; unsigned long value; };\n"
        'static const struct entry entries[] = {{"sizeof(vfu_dma_info_t)", 4}, {0, 0}};\n'
        "const struct entry *pvu_layout(void) { return entries; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / SHIM, source], check=True)
    with pytest.raises(LibraryError, match=r"sizeof\(vfu_dma_info_t\) is 4, 56 expected") as caught:
        Library(tmp_path / "libvfio-user.so")
    assert "\n" not in str(caught.value)


def test_without_the_shim_nothing_is_trusted(vfio_user_library: Path, tmp_path: Path) -> None:
    shutil.copy(vfio_user_library, tmp_path / "libvfio-user.so")
    with pytest.raises(LibraryError, match="no layout check"):
        Library(tmp_path / "libvfio-user.so")


def test_close_is_idempotent_and_removes_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Context(path) as context:
        assert path.exists() and context.detached
        assert context.run() == 0
        assert not context.trigger(0)
    context.close()
    assert not path.exists()
