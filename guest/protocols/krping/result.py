"""The result of a krping run: statistics, or the reason of its failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one krping command: `stats` has the nine columns by name.

    `iterations` counts finished ones, `validated` those whose data was compared and right.
    `us_per_iteration` is None on a server, which does not begin iterations. A run that was
    `cancelled` is fine when it was endless or had made its `count` iterations by then.
    """

    ok: bool
    iterations: int
    validated: int
    us_per_iteration: dict[str, float] | None
    stats: dict[str, str | int]
    cancelled: bool = False
    error: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        answer: dict[str, object] = {
            "ok": self.ok,
            "iterations": self.iterations,
            "validated": self.validated,
            "us_per_iteration": self.us_per_iteration,
            "stats": self.stats,
        }
        if self.cancelled:
            answer["cancelled"] = True
        if self.error:
            answer["error"] = self.error
        return answer

    @property
    def stats_line(self) -> str:
        """Return the nine columns as /proc/krping has them."""
        return " ".join(str(value) for value in self.stats.values())

    @property
    def summary(self) -> str:
        """Return a one-line summary for the user."""
        text = f"{self.iterations} iterations, {self.validated} validated"
        if self.us_per_iteration is not None:
            low, middle, high = self.us_per_iteration.values()
            text += f", min/median/p99 {low}/{middle}/{high} us per iteration"
        return text
