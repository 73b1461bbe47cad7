"""C code of the device's hot modules, made by mypyc: `bluebridge.images.device_build` runs it.

    python -m bluebridge.images.device_c GROUP FOLDER

Writes the C files of the group (`bluebridge/hot_modules.py`) into FOLDER, and `extensions.json`:
for each extension module its C files and the folders of headers. Modules that have C of their own
are among them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mypyc.build import mypycify

from bluebridge import hot_modules
from bluebridge.compiled import Group
from bluebridge.images.device_build import EXTENSIONS
from bluebridge.images.enum_members import copy_sources
from bluebridge.images.extensions import TYPES
from bluebridge.images.source import HOME


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
    for name in group.native:
        source = HOME / f"{name.replace('.', '/')}.c"
        told[name] = {"sources": [str(source)], "headers": []}
    (folder / EXTENSIONS).write_text(json.dumps(told))


def main() -> None:
    """See the head of this module; the working directory holds `bluebridge`."""
    name, folder = sys.argv[1:]
    write(getattr(hot_modules, name.upper()), Path(folder))


if __name__ == "__main__":
    main()
