"""Plant a defect in the memory of this process, and of those that it starts.

The file stays as it is: Python is given another module when it imports that file.
"""

from __future__ import annotations

import os
from importlib.abc import InspectLoader
from importlib.machinery import FileFinder, ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutants.table import ROOT, Defect, rows

NAME = "BLUEBRIDGE_PLANTED"
"""The environment variable that has a defect's name in processes that a test starts."""
CHILDREN = Path(__file__).parent / "children"
"""The folder of the `sitecustomize` that plants it there."""


class _Planted(InspectLoader):
    """Loads the module with the defect; pytest rewrites the assertions of other loaders' only."""

    def __init__(self, code: CodeType) -> None:
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code."""
        return self._code

    def get_source(self, fullname: str) -> str:
        """Return the text of the file."""
        return Path(self._code.co_filename).read_text()


def plant(defect: Defect) -> None:
    """Have the defect in modules that are imported from now on. Raises `DoesNotApply`."""
    path = str(ROOT / defect.file)
    planted = _Planted(defect.code(path))
    unchanged = FileFinder.find_spec

    def find_spec(
        finder: FileFinder, name: str, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = unchanged(finder, name, target)
        if spec is not None and os.path.realpath(spec.origin or "") == path:
            spec.loader = planted
        return spec

    FileFinder.find_spec = find_spec  # type: ignore[method-assign, assignment]
    os.environ[NAME] = defect.name
    os.environ["PYTHONPATH"] = f"{CHILDREN}{os.pathsep}{ROOT}"


def plant_named(name: str) -> None:
    """Plant the defect that has that name."""
    plant(next(defect for defect in rows() if defect.name == name))
