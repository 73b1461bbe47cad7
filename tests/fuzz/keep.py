"""`python -m tests.fuzz.keep TARGET FOUND CORPUS`: copy the inputs that reach more lines.

Small ones first, so that the corpus stays small; libFuzzer's own merge starts programs anew, which
does not work for programs in Python.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.coverage import Lines


def keep(name: str, found: Path, corpus: Path) -> int:
    """How many inputs of `found` are new in `corpus`."""
    lines, kept = Lines(), 0
    for path in _by_size(corpus):
        _run(name, path, lines)
    for path in _by_size(found):
        before = lines.count
        _run(name, path, lines)
        if lines.count > before:
            shutil.copy(path, corpus / path.name[:12])
            kept += 1
    return kept


def _by_size(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: (path.stat().st_size, path.name))


def _run(name: str, path: Path, lines: Lines) -> None:
    with lines:
        targets.TARGETS[name](path.read_bytes())


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
