"""Both forms of `bluebridge.device.pieces`: its source, and the C beside it compiled for tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from bluebridge.compiled import SUFFIX
from bluebridge.images import extensions
from bluebridge.images.cache import PACKAGE
from bluebridge.images.report import ImageError

SOURCE: Final = PACKAGE / "device" / "pieces.py"
FLAGS: Final = (
    "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
)  # fmt: skip


@cache
def plain() -> ModuleType:
    """The module as it runs interpreted."""
    return _load("plain_pieces", SOURCE)


@cache
def native() -> ModuleType:
    """The module in C; skips the test where nothing compiles C for Python."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"pieces{SUFFIX}"
        headers = f"-I{sysconfig.get_path('include')}"
        if not Path(headers[2:], "Python.h").is_file():
            pytest.skip("Python.h is missing")
        try:
            command = [extensions.compiler(), *FLAGS, headers]
        except ImageError as error:
            pytest.skip(str(error))
        subprocess.run([*command, SOURCE.with_suffix(".c"), "-o", made], check=True)
        return _load("pieces", made)


def _load(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
