"""Plant a defect in the memory of this process, and of those that it starts.

The file stays as it is: Python is given another module when it imports that file, and a function
that is imported already gets other code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.abc import InspectLoader
from importlib.machinery import FileFinder, ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutants.table import ROOT, Defect, rows

NAME = "BLUEBRIDGE_PLANTED"
"""The environment variable that has a defect's name in processes that a test starts."""
_INSIDE = ("__wrapped__", "__func__", "fget", "fset", "func")
"""The names by which wrappers call the function that they hold."""
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


def swap(defect: Defect) -> bool:
    """Give the defect to functions that are imported already; return whether one had it.

    None has a defect in what the module itself did when it was imported. Raises `DoesNotApply`.
    """
    module = sys.modules.get(f"bluebridge.{defect.file.removesuffix('.py').replace('/', '.')}")
    functions = {} if module is None else dict(_functions(module, module.__name__))
    swapped = False
    for code in _codes(defect.code(str(ROOT / defect.file))):
        function = functions.get(_place(code))
        if function is not None and code != function.__code__:
            function.__code__ = code
            swapped = True
    return swapped


def _place(code: CodeType) -> tuple[str, int]:
    """Its name and line: reading and setting a property have the same name."""
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of each function in a module, those inside functions with what is around them."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _functions(found: object, module: str) -> Iterator[tuple[tuple[str, int], FunctionType]]:
    """The functions of a module and of its classes, those of properties and decorators as well."""
    for each in list(vars(found).values()):
        for part in (each, *(getattr(each, name, None) for name in _INSIDE)):
            if isinstance(part, FunctionType) and part.__module__ == module:
                yield _place(part.__code__), part
        if isinstance(each, type) and each.__module__ == module:
            yield from _functions(each, module)


def plant_named(name: str) -> None:
    """Plant the defect that has that name."""
    plant(next(defect for defect in rows() if defect.name == name))
