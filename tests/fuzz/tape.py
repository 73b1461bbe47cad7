"""What a unit test does to hosts and functions, as steps."""

from __future__ import annotations

from tests.fuzz.guests import FORMS, PAGE, TICK, Kind
from tests.fuzz.steps import Step, encode


class Tape:
    """What one test did, as steps; `clean` while all of it could be written down."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.hosts: dict[int, int] = {}
        """Numbers of hosts by identity."""
        self.functions: dict[int, int] = {}
        self.kept: list[object] = []
        self.header = [0, 0]
        self.target = ""
        self.clean = True
        self._loaded: set[Step] = set()

    def content(self) -> bytes:
        """All steps."""
        return b"".join(encode(FORMS, step) for step in self.steps)

    def add(self, kind: Kind, number: int | None, *numbers: int, data: bytes = b"") -> None:
        """One step; stores and pokes that go on where the last ended become one."""
        if number is None:
            return
        step = Step(kind, number, numbers, data)
        if kind is Kind.LOAD and self.target == "hca":
            if step in self._loaded:
                return
            self._loaded.add(step)
        last = self.steps[-1] if self.steps else None
        joined = _joined(last, step) if last is not None else None
        if joined is not None:
            self.steps[-1] = joined
        else:
            self.steps.append(step)


def _joined(last: Step, step: Step) -> Step | None:
    """Both as one step, None when they are two."""
    if last.function != step.function:
        return None
    if last.kind == step.kind == Kind.TIME:
        total = last.numbers[0] + step.numbers[0]
        return Step(Kind.TIME, step.function, (total,)) if total * TICK < 1 else None
    if last.kind == step.kind == Kind.POKE:
        start, length = last.numbers
        if step.numbers[0] != start + length or length > PAGE or step.numbers[1] > 64:
            return None
        data = last.data.ljust(length, b"\0") + step.data
        return Step(Kind.POKE, step.function, (start, length + step.numbers[1]), data)
    if step.kind != Kind.STORE or len(step.data) != 4 or last.numbers[:1] != step.numbers[:1]:
        return None
    if (last.kind == Kind.STORE and len(last.data) == 4) or last.kind == Kind.STORES:
        bar, offset = last.numbers[:2]
        if offset + len(last.data) == step.numbers[1]:
            return Step(Kind.STORES, step.function, (bar, offset, 4), last.data + step.data)
    return None
