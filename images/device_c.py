"""C code of the device's hot modules, made by mypyc: `bluebridge.images.device_build` runs it.

    python -m bluebridge.images.device_c GROUP FOLDER

Writes the C files of the group (`bluebridge/hot_modules.py`) into FOLDER, and `extensions.json`:
for each extension module its C files and the folders of headers.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from mypyc.build import mypycify

from bluebridge import hot_modules
from bluebridge.compiled import Group
from bluebridge.images.device_build import EXTENSIONS
from bluebridge.images.enum_members import hoisted
from bluebridge.images.extensions import TYPES
from bluebridge.images.source import PACKAGE


def write(group: Group, folder: Path) -> None:
    """Write the C code of `group` into `folder`; ends the process if mypyc refuses a module."""
    paths = [module.replace(".", "/") + ".py" for module in group.modules()]
    copy_sources(group.sources, paths, folder / "tree")
    os.chdir(folder / "tree")  # names of files in tracebacks begin with `bluebridge/`
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
    (folder / EXTENSIONS).write_text(json.dumps(told))


def copy_sources(folders: Sequence[str], hot: Sequence[str], tree: Path) -> None:
    """Folders of the package below `tree`, the files `hot` with their enumerations hoisted."""
    code_only = shutil.ignore_patterns("__pycache__")
    for folder in folders:
        target = tree / PACKAGE.name / folder
        shutil.copytree(PACKAGE / folder, target, ignore=code_only)
    for path in PACKAGE.glob("*.py"):
        shutil.copyfile(path, tree / PACKAGE.name / path.name)
    for name in hot:
        file = tree / name
        file.write_text(hoisted(file.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """See the head of this module; the working directory holds `bluebridge`."""
    name, folder = sys.argv[1:]
    write(getattr(hot_modules, name.upper()), Path(folder))


if __name__ == "__main__":
    main()
