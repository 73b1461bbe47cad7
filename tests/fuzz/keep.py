"""`python -m tests.fuzz.keep TARGET FOUND CORPUS`: let a corpus have the inputs that reach most.

Of those in both folders the ones remain that reach lines which no other does, chosen by lines per
byte, so that the corpus stays small; libFuzzer's own merge starts programs anew, which does not
work for programs in Python. One that the target refuses is no input of a corpus.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.coverage import Lines

Reached = frozenset[tuple[str, int]]
NAME = 12
"""Characters of a file's name, of the digest of its bytes."""


def keep(name: str, found: Path, corpus: Path) -> int:
    """How many inputs of `found` are new in `corpus`."""
    before = {path.read_bytes() for path in corpus.iterdir()}
    inputs = before | {path.read_bytes() for path in found.iterdir()}
    reached = {data: lines for data in sorted(inputs) if (lines := _reached(name, data))}
    kept = cover(reached)
    for path in corpus.iterdir():
        path.unlink()
    for data in kept:
        Path(corpus, hashlib.sha1(data).hexdigest()[:NAME]).write_bytes(data)
    return len(kept - before)


def cover(reached: dict[bytes, Reached]) -> set[bytes]:
    """Few inputs that reach all lines which any reaches: most new lines for a byte first."""
    kept: set[bytes] = set()
    wanted: set[tuple[str, int]] = set().union(*reached.values())
    waiting = dict(reached)
    while wanted:
        best = max(waiting, key=lambda data: (len(waiting[data]) / (len(data) + 64), data))
        kept.add(best)
        wanted -= waiting.pop(best)
        waiting = {data: new for data, lines in waiting.items() if (new := lines & wanted)}
    return kept


def _reached(name: str, data: bytes) -> Reached:
    """Lines below the folders that are fuzzed; none when the input is a finding."""
    lines = Lines()
    try:
        with lines:
            targets.TARGETS[name](data)
    except Exception as error:
        print(f"{name}: not kept, {error!r}", file=sys.stderr)
        return frozenset()
    return frozenset((file, line) for file, all_ in lines.executed.items() for line in all_)


if __name__ == "__main__":
    logging.lastResort = None
    keep(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
