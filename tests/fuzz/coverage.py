"""`python -m tests.fuzz.coverage`: which lines of the device the corpora reach, and which not.

A program of its own: what runs while modules are imported is told apart from what inputs reach.
"""

from __future__ import annotations

import dis
import logging
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.steps import CORPUS

HERE = Path(__file__).resolve().parent
_PACKAGE = HERE.parents[1] / "bluebridge"
DEVICE = (_PACKAGE / "device").resolve()
_OTHERS = ("guest/agent", "host_tools/analyzer/pcap", "host_tools/analyzer/wire_check")
FOLDERS = (DEVICE, *((_PACKAGE / name).resolve() for name in _OTHERS))
"""Folders that are fuzzed: lines below them count when inputs are kept."""
ROOMS = (
    "mlx4", "mlx5", "rings", "rdma", "ethernet", "frames", "ntb", "dma", "pyvfio_user", "fabric",
    "pci",
)  # fmt: skip
_EMPTY = {"RESUME", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}
"""All that a function without a statement consists of, such as a method of a protocol."""


class Lines:
    """Lines executed below `FOLDERS`, by file."""

    def __init__(self) -> None:
        self.executed: dict[str, set[int]] = defaultdict(set)
        self._ours: dict[str, str] = {}
        """Files by the name that code objects have; empty for others."""

    def __enter__(self) -> Lines:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        ours = self._ours.get(name)
        if ours is None:
            path = Path(name).resolve()
            counts = any(path.is_relative_to(folder) for folder in FOLDERS)
            ours = self._ours[name] = str(path) if counts else ""
        return self._line if ours else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.executed[self._ours[frame.f_code.co_filename]].add(frame.f_lineno)
        return self._line


def replay(lines: Lines) -> int:
    """Run every input of the corpora; how many there were."""
    from tests.fuzz import targets

    count = 0
    for name in targets.TARGETS:
        for path in sorted((CORPUS / name).glob("*")):
            with lines:
                targets.TARGETS[name](path.read_bytes())
            count += 1
    return count


@dataclass(slots=True)
class Function:
    """One function of a file."""

    file: Path
    name: str
    possible: set[int]
    reached: set[int]


def functions(room: str, imported: Lines, lines: Lines) -> Iterator[Function]:
    """Yield the functions of a room that inputs could reach; lines of imports are left out."""
    for path in sorted((DEVICE / room).rglob("*.py")):
        if "samples" in path.parts:
            continue
        reached, before = (each.executed.get(str(path), set()) for each in (lines, imported))
        for name, possible in _functions(compile(path.read_text(), str(path), "exec")):
            hit = possible & reached
            if hit or not possible & before:
                yield Function(path, name, possible, hit)


def _functions(code: CodeType) -> Iterator[tuple[str, set[int]]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                found = {line for _, _, line in inner.co_lines() if line}
                found.discard(inner.co_firstlineno)
                if found and not {each.opname for each in dis.get_instructions(inner)} <= _EMPTY:
                    yield inner.co_qualname, found
            yield from _functions(inner)


def report(imported: Lines, lines: Lines) -> Iterator[str]:
    """A line for each room, then the functions of it that nothing reached, file by file."""
    for room in ROOMS:
        found = list(functions(room, imported, lines))
        done, possible = (
            sum(len(getattr(each, part)) for each in found) for part in ("reached", "possible")
        )
        yield f"device/{room}: {done / possible:.1%} of {possible} lines in functions"
        missed: dict[Path, list[str]] = defaultdict(list)
        for each in found:
            if not each.reached and "<" not in each.name.rpartition(".")[2]:
                missed[each.file.relative_to(DEVICE)].append(each.name)
        for file, names in missed.items():
            yield f"    not reached: {file}: {', '.join(names)}"


def main() -> None:
    """Print the lines and functions of each room that the corpora reach."""
    logging.lastResort = None
    imported, lines = Lines(), Lines()
    with imported:
        from tests.fuzz import targets  # noqa: F401
    count = replay(lines)
    print(f"{count} inputs in {CORPUS.relative_to(HERE.parents[1])}")
    print(*report(imported, lines), sep="\n")


if __name__ == "__main__":
    main()
