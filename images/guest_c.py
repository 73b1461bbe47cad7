"""C code of the guest's hot modules, made by mypyc: `python -m bluebridge.images.guest_c FOLDER`.

Run as a process by `bluebridge.images.guest_build`; the working directory holds `bluebridge`.
Writes into FOLDER the C files and `told.json`: the folder of mypyc's headers as `headers`, and as
`modules` the C files of each extension module by full name.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from mypyc.build import generate_c_extension_shim, include_dir, mypyc_build
from mypyc.common import RUNTIME_C_FILES, shared_lib_name
from mypyc.options import CompilerOptions

from bluebridge.images.enum_members import copy_sources
from bluebridge.images.extensions import TYPES
from bluebridge.images.guest_build import TOLD
from bluebridge.images.guest_modules import GROUP, MODULES
from bluebridge.images.recipes.unpacked import VERSION

SOURCES = ("guest", "device")
"""The trees that are copied, since the modules are type-checked with them."""


def write(folder: Path) -> None:
    """Write everything for the guest's Python; ends the process if mypyc refuses a module."""
    options = CompilerOptions(
        multi_file=True,
        target_dir=str(folder),
        group_name=GROUP,
        include_runtime_files=False,
        capi_version=VERSION,
        python_version=VERSION,
    )
    paths = [module.replace(".", "/") + ".py" for module in MODULES]
    copy_sources(SOURCES, paths, folder / "tree")
    os.chdir(folder / "tree")
    python = f"--python-version={VERSION[0]}.{VERSION[1]}"
    _, [(files, _)], _ = mypyc_build([*TYPES, python, *paths], options)
    modules = {shared_lib_name(GROUP): [*files, *_runtime(folder)]}
    for module in MODULES:
        name = module.rpartition(".")[2]
        modules[module] = [generate_c_extension_shim(module, name, str(folder), GROUP)]
    told = {"headers": include_dir(), "modules": modules}
    (folder / TOLD).write_text(json.dumps(told))


def _runtime(folder: Path) -> list[str]:
    """mypyc's own library, which each group contains."""
    return [str(shutil.copy(Path(include_dir(), name), folder)) for name in RUNTIME_C_FILES]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
