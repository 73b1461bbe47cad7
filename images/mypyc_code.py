"""C code of hot modules, made by mypyc: `device_build` and `guest_build` run it as a process.

    python -m bluebridge.images.mypyc_code GROUP FOLDER

Writes into FOLDER the C files of the group, `guest` or one of `bluebridge/hot_modules.py`, and what
its builder is told: for a group of the device `extensions.json`, for each extension module its C
files and the folders of headers, modules that have C of their own among them; for the guest
`told.json`, the folder of mypyc's headers as `headers`, and as `modules` the C files of each
extension module by full name. The working directory holds `bluebridge`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from mypyc.build import generate_c_extension_shim, include_dir, mypyc_build, mypycify
from mypyc.common import RUNTIME_C_FILES, shared_lib_name
from mypyc.options import CompilerOptions

from bluebridge import hot_modules
from bluebridge.compiled import Group
from bluebridge.images.cache import HOME
from bluebridge.images.device_build import EXTENSIONS
from bluebridge.images.extensions import TYPES, copy_sources
from bluebridge.images.guest_build import GROUP, MODULES, TOLD
from bluebridge.images.recipes.recipe import VERSION


def write_device(group: Group, folder: Path) -> None:
    """Write the C code of `group` into `folder`; ends the process if mypyc refuses a module."""
    paths = _copied(group.sources, group.modules(), folder)
    extensions = mypycify(
        [*TYPES, "--ignore-missing-imports", *paths],
        group_name=group.library.removesuffix("__mypyc"),
        target_dir=str(folder),
        multi_file=True,
    )
    told = {
        extension.name: {
            "sources": [os.path.abspath(source) for source in extension.sources],
            "headers": [os.path.abspath(path) for path in extension.include_dirs],
        }
        for extension in extensions
    }
    for name in group.native:
        source = HOME / f"{name.replace('.', '/')}.c"
        told[name] = {"sources": [str(source)], "headers": []}
    (folder / EXTENSIONS).write_text(json.dumps(told))


def write_guest(folder: Path) -> None:
    """Write everything for the guest's Python; ends the process if mypyc refuses a module."""
    options = CompilerOptions(
        multi_file=True,
        target_dir=str(folder),
        group_name=GROUP,
        include_runtime_files=False,
        capi_version=VERSION,
        python_version=VERSION,
    )
    # The modules are type-checked with these trees.
    paths = _copied(("guest", "device"), MODULES, folder)
    python = f"--python-version={VERSION[0]}.{VERSION[1]}"
    _, [(files, _)], _ = mypyc_build([*TYPES, python, *paths], options)
    runtime = [str(shutil.copy(Path(include_dir(), name), folder)) for name in RUNTIME_C_FILES]
    modules = {shared_lib_name(GROUP): [*files, *runtime]}
    for module in MODULES:
        name = module.rpartition(".")[2]
        modules[module] = [generate_c_extension_shim(module, name, str(folder), GROUP)]
    told = {"headers": include_dir(), "modules": modules}
    (folder / TOLD).write_text(json.dumps(told))


def _copied(sources: Iterable[str], modules: Iterable[str], folder: Path) -> list[str]:
    """Copy the folders `sources` and change to the copy; return the files of `modules` in it."""
    paths = [module.replace(".", "/") + ".py" for module in modules]
    copy_sources(tuple(sources), paths, folder / "tree")
    os.chdir(folder / "tree")  # names of files in tracebacks begin with `bluebridge/`
    return paths


if __name__ == "__main__":
    name, where = sys.argv[1:]
    if name == "guest":
        write_guest(Path(where))
    else:
        write_device(getattr(hot_modules, name.upper()), Path(where))
