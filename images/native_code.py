"""C code of the hot modules, made by mypyc; run by `bluebridge.images.compile` as a process.

    python -m bluebridge.images.native_code GROUP FOLDER

Writes the C files of the group (`bluebridge/hot_modules.py`) into FOLDER, and `extensions.json`:
for each extension module its C files, relative to FOLDER, and the folders of headers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mypyc.build import mypycify

from bluebridge import hot_modules
from bluebridge.compiled import Group
from bluebridge.images.source import HOME

EXTENSIONS = "extensions.json"
# A cache of types would have to be as reliable as the key of a build; making them takes 4 s.
TYPES = (
    "--strict",
    "--config-file=",
    "--cache-dir=/dev/null",
    "--follow-imports=silent",
    "--ignore-missing-imports",
)


def write(group: Group, folder: Path) -> None:
    """Write the C code of `group` into `folder`; ends the process if mypyc refuses a module."""
    paths = [module.replace(".", "/") + ".py" for module in group.modules()]
    extensions = mypycify(
        [*TYPES, *paths],
        group_name=group.library.removesuffix("__mypyc"),
        target_dir=str(folder),
        multi_file=True,
    )
    told = {
        extension.name: {
            "sources": [str(Path(HOME, source)) for source in extension.sources],
            "headers": [str(Path(HOME, path)) for path in extension.include_dirs],
        }
        for extension in extensions
    }
    (folder / EXTENSIONS).write_text(json.dumps(told))


def main() -> None:
    """See the head of this module; the working directory holds `bluebridge`."""
    name, folder = sys.argv[1:]
    write(getattr(hot_modules, name.upper()), Path(folder))


if __name__ == "__main__":
    main()
