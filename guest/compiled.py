"""The finder of compiled modules, which replace their sources where this image has them.

Beside the sources lies a folder with what mypyc made of exactly these sources
(`bluebridge.images.guest_build`): an extension module for each hot module, called by its full name,
and the library that all of them take their code from. Without the folder, or with
`BLUEBRIDGE_PURE=1` in the environment, the sources run.

This runs at each start of a program in a guest: it imports nothing that Python has not loaded yet.
"""

from __future__ import annotations

import os
import sys

from bluebridge.compiled import extension, wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

FOLDER = "compiled_guest"
"""The name of the folder in the package `bluebridge`."""
SUFFIX = ".so"


class CompiledFinder:
    """A finder of the modules whose files are called `files` in `folder`."""

    def __init__(self, folder: str, files: Iterable[str]) -> None:
        self._files = {
            file.removesuffix(SUFFIX): os.path.join(folder, file)
            for file in files
            if file.endswith(SUFFIX)
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the extension module `name`, None if it is not compiled."""
        file = self._files.get(name)
        return None if file is None else extension(name, file)


def install() -> None:
    """Let imports find compiled modules, unless `BLUEBRIDGE_PURE` is set, not empty and not 0."""
    if not wanted():
        return
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), FOLDER)
    try:
        files = os.listdir(folder)
    except OSError:
        return
    sys.meta_path.insert(0, CompiledFinder(folder, files))
