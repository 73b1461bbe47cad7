"""Places of a device where a fault decides what happens, while one is armed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Decision = TypeVar("Decision")


class FaultPoint(Generic[Decision]):
    """A place where an armed fault is asked each time; `decide` is None while none is armed."""

    def __init__(self) -> None:
        self.decide: Callable[[], Decision] | None = None

    def arm(self, decide: Callable[[], Decision]) -> Callable[[], None]:
        """Let a fault decide from now on; return what ends that."""
        before, self.decide = self.decide, decide

        def end() -> None:
            self.decide = before

        return end
