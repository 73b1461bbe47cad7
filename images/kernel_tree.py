"""Where a kernel that was built here has its source and what kbuild wrote, for its modules."""

from __future__ import annotations

import json
from pathlib import Path

from bluebridge.images.report import ImageError
from bluebridge.images.sandbox import Bind

_NOTE = "tree.json"


def note(folder: Path, source: Path, output: Path) -> None:
    """Write into the folder of a kernel where it was built."""
    (folder / _NOTE).write_text(json.dumps([str(source), str(output)]))


def binds(folder: Path) -> tuple[Bind, Bind]:
    """Return what a sandbox sees of that as `/source` and `/build`.

    Raises `ImageError` when one of them is not there any more.
    """
    try:
        source, output = (Path(each) for each in json.loads((folder / _NOTE).read_text()))
    except (OSError, ValueError):
        source = output = Path("/nonexistent")
    if not (source.is_dir() and output.is_dir()):
        what = f"the tree of the kernel in {folder} is not there any more"
        raise ImageError(what, "`bluebridge kernel build SOURCE` makes it anew")
    return Bind(source, "source"), Bind(output, "build")
