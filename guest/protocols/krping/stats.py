"""Statistics of a krping thread in the nine columns of /proc/krping, and its latencies."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """The bytes and messages of each operation, counted when the work completes."""

    send_bytes: int = 0
    send_msgs: int = 0
    recv_bytes: int = 0
    recv_msgs: int = 0
    write_bytes: int = 0
    write_msgs: int = 0
    read_bytes: int = 0
    read_msgs: int = 0

    def by_name(self, name: str) -> dict[str, str | int]:
        """Return the nine columns by name, in order."""
        return {
            "name": name,
            "send_bytes": self.send_bytes,
            "send_msgs": self.send_msgs,
            "recv_bytes": self.recv_bytes,
            "recv_msgs": self.recv_msgs,
            "write_bytes": self.write_bytes,
            "write_msgs": self.write_msgs,
            "read_bytes": self.read_bytes,
            "read_msgs": self.read_msgs,
        }

    def line(self, name: str) -> str:
        """Return one line of /proc/krping without the newline."""
        return " ".join(str(value) for value in self.by_name(name).values())


RESERVOIR = 100_000
"""The number of latencies kept; beyond it, a uniform sample bounds endless runs."""


class Latencies:
    """Microseconds per iteration: exact minimum, percentiles of at most `RESERVOIR` samples."""

    def __init__(self) -> None:
        self.count = 0
        self.minimum = float("inf")
        self._kept = array("d")

    def add(self, microseconds: float) -> None:
        """Record one iteration."""
        self.count += 1
        if microseconds < self.minimum:
            self.minimum = microseconds
        if len(self._kept) < RESERVOIR:
            self._kept.append(microseconds)
            return
        place = int(random.random() * self.count)
        if place < RESERVOIR:
            self._kept[place] = microseconds

    def summary(self) -> dict[str, float] | None:
        """Return {min, p50, p99} in microseconds, None before the first iteration."""
        if not self.count:
            return None
        ordered = sorted(self._kept)
        return {
            "min": round(self.minimum, 1),
            "p50": round(_percentile(ordered, 0.50), 1),
            "p99": round(_percentile(ordered, 0.99), 1),
        }


def _percentile(ordered: list[float], share: float) -> float:
    """Return the sample below which `share` of the others lie (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
