"""`python -m tests.size [--since COMMIT]`: lines of source by room, and how many came or went.

The change is that since the last release tag, if there is one. Files count that git knows: all
text below the rooms but corpora of the fuzzer, and nothing of docs. Support is what stands under
tests, is no test, and no campaign.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

PRODUCT = ("device", "guest", "host_tools", "images")
FOLDERS = (*PRODUCT, "tests")
CORPORA = "tests/fuzz/corpus/"
CAMPAIGNS = "tests/campaigns/"
TOTALS: dict[str, Callable[[str], bool]] = {
    "product": lambda path: path.startswith(PRODUCT),
    "tests": lambda path: path.startswith("tests"),
    "  of them support": lambda path: (
        path.startswith("tests") and not path.startswith(CAMPAIGNS) and not _is_test(path)
    ),
}


def main(argv: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Print a line for each room and total; the status is 2 if git does not know the commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.size", description=__doc__)
    parser.add_argument("--since", metavar="COMMIT", help="compare with it, not with the last tag")
    since = parser.parse_args(argv).since or _last_tag(root)
    try:
        changed = _changes(root, since) if since else None
    except subprocess.CalledProcessError as error:
        print(f"size: {error.stderr.splitlines()[0]}", file=sys.stderr)
        return 2
    lines = _lines(root)
    print(
        f"lines, and the change since {since}" if since else "lines; no release tag to compare with"
    )
    for room in sorted({_room(path) for path in (*lines, *(changed or ()))}):
        _print(room, lines, changed, partial(_is_in, room))
    for name, counts in TOTALS.items():
        _print(name, lines, changed, counts)
    return 0


def _print(
    name: str, lines: Counter[str], changed: Counter[str] | None, counts: Callable[[str], bool]
) -> None:
    numbers = [f"{sum(lines[path] for path in lines if counts(path)):7,}"]
    if changed is not None:
        numbers.append(f"{sum(changed[path] for path in changed if counts(path)):+7,}")
    print(*numbers, "", name)


def _room(path: str) -> str:
    """The folder below one of `FOLDERS`, or that one itself for a file directly below it."""
    folder, *inner = path.split("/")
    return "/".join([folder, *inner[:-1][:1]])


def _is_in(room: str, path: str) -> bool:
    return _room(path) == room


def _is_test(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_")


def _lines(root: Path) -> Counter[str]:
    """The lines of each file."""
    paths = _git(root, "ls-files", "-z", "--", *FOLDERS).split("\0")
    return Counter({path: _count(root / path) for path in paths if path and _counts(path)})


def _count(path: Path) -> int:
    """Return the lines of a text; 0 for what is none, or was deleted."""
    data = path.read_bytes() if path.is_file() else b""
    return 0 if b"\0" in data else data.count(b"\n")


def _changes(root: Path, since: str) -> Counter[str]:
    """Lines that came since a commit less those that went, by file."""
    changed = Counter[str]()
    # A file that was moved has left one room for another.
    said = _git(root, "diff", "--numstat", "--no-renames", "-z", since, "--", *FOLDERS)
    for added, deleted, path in _rows(said):
        if _counts(path) and added != "-":
            changed[path] = int(added) - int(deleted)
    return changed


def _rows(numstat: str) -> Iterator[tuple[str, str, str]]:
    for row in numstat.split("\0"):
        if row:
            added, deleted, path = row.split("\t")
            yield added, deleted, path


def _counts(path: str) -> bool:
    return not path.startswith(CORPORA)


def _last_tag(root: Path) -> str:
    """The last release's tag, empty if there is none."""
    return subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
