"""Which lines of the device the corpora reach."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzz import targets

DEVICE = Path(targets.__file__).resolve().parents[2] / "device"
FOLDERS = (DEVICE, DEVICE.parent / "guest" / "agent")
"""What is fuzzed: lines below them count when inputs are kept."""
ROOMS = ("hca", "ntb", "dma", "pyvfio_user", "fabric", "pci")


class Lines:
    """Lines executed below `FOLDERS`, by file."""

    def __init__(self) -> None:
        self.executed: dict[str, set[int]] = defaultdict(set)
        self._ours: dict[str, bool] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(len(found) for found in self.executed.values())

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
            ours = self._ours[name] = any(path.is_relative_to(folder) for folder in FOLDERS)
        return self._line if ours else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.executed[frame.f_code.co_filename].add(frame.f_lineno)
        return self._line


def replay(corpus: Path, lines: Lines) -> int:
    """Run every input of the corpora; how many there were."""
    count = 0
    for name in targets.TARGETS:
        for path in sorted((corpus / name).glob("*")):
            with lines:
                targets.run(name, path.read_bytes())
            count += 1
    return count


def table(lines: Lines) -> list[str]:
    """A line for each room, with the files of which least was reached."""
    reached = {str(Path(name).resolve()): found for name, found in lines.executed.items()}
    return [_room(room, reached) for room in ROOMS]


def _room(room: str, reached: dict[str, set[int]]) -> str:
    found: list[tuple[float, str]] = []
    done = possible = 0
    for path in sorted((DEVICE / room).rglob("*.py")):
        if "samples" in path.parts:
            continue
        lines = _statements(compile(path.read_text(), str(path), "exec"))
        hit = lines & reached.get(str(path), set())
        done, possible = done + len(hit), possible + len(lines)
        if lines:
            found.append((len(hit) / len(lines), path.name))
    least = ", ".join(f"{name} {share:.0%}" for share, name in sorted(found)[:6] if share < 0.85)
    return f"device/{room}: {done / possible:.0%} of {possible} lines in functions; least: {least}"


def _statements(code: CodeType) -> set[int]:
    """Lines of all functions inside: what runs at import is not counted."""
    found: set[int] = set()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                found |= {line for _, _, line in inner.co_lines() if line}
                found.discard(inner.co_firstlineno)
            found |= _statements(inner)
    return found
