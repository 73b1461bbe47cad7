"""`python -m tests.campaigns.in_turn REVISION`: whether a ConnectX-3 is as fast as it was then.

Of a revision and of this tree, in turn, round by round: the seconds of `bluebridge up --driver
kernel`, and the typical latency of `ib_write_lat -s 64` between its guests in microseconds. Prints
a line for each, then the medians without the first round; exit status 1 if the latency grew by more
than 2 % or `up` by more than 0.1 s. Needs a quiet machine, and both device servers compiled, or
both not (`--pure`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from bluebridge.images.cache import HOME
from tests.campaigns.same_log import checkout

MOST_LATENCY: Final = 1.02
"""The ratio of latencies that counts as no slower."""
MOST_SECONDS: Final = 0.1
PORT: Final = 18515
WRITES: Final = "ib_write_lat -s 64 -n 2000 -x 0"
TYPICAL: Final = 4
"""The column of ib_write_lat with the typical latency."""


class Revision:
    """A checkout, whose `bluebridge` keeps its pairs in a folder of its own."""

    def __init__(self, name: str, tree: Path, folder: Path, *, pure: bool) -> None:
        self.name = name
        own = {"PYTHONPATH": str(tree), "XDG_RUNTIME_DIR": str(folder)}
        self._environment: Mapping[str, str] = {
            **os.environ, **own, **({"BLUEBRIDGE_PURE": "1"} if pure else {})
        }  # fmt: skip
        self._tree = tree
        self.seconds: list[float] = []
        self.latencies: list[float] = []

    def bluebridge(self, *words: str) -> str:
        """Run a command of `bluebridge`; returns what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "bluebridge.host_tools.cli", *words],
            cwd=self._tree, env=self._environment, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return done.stdout

    def measure(self) -> None:
        """Start a pair, run the program between its guests, end the pair."""
        begin = time.monotonic()
        self.bluebridge("up", "--quiet", "--driver", "kernel")
        try:
            self.seconds.append(time.monotonic() - begin)
            self.bluebridge("run", "b", "--", f"{WRITES} > /dev/null 2>&1 &")
            ready = f"until ss -ltn | grep -q :{PORT}; do sleep 0.1; done"
            self.bluebridge("run", "b", "--", ready)
            found = self.bluebridge("run", "a", "--", f"{WRITES} 10.9.0.2")
            self.latencies.append(typical(found))
        finally:
            self.bluebridge("down")
        row = {"revision": self.name, "up": self.seconds[-1], "ib_write_lat": self.latencies[-1]}
        print(json.dumps(row), flush=True)


def typical(text: str) -> float:
    """Return the typical latency in the table that ib_write_lat prints."""
    (line,) = (each for each in text.splitlines() if each.split()[:1] == ["64"])
    return float(line.split()[TYPICAL])


def main(words: Sequence[str] | None = None) -> int:
    """Measure both; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="of before, such as 9b36c7d4")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pure", action="store_true", help="interpret both device servers")
    options = parser.parse_args(words)
    with TemporaryDirectory() as folder, checkout(options.revision, Path(folder)) as tree:
        before = Revision(options.revision, tree, Path(folder), pure=options.pure)
        after = Revision("now", HOME, Path(folder), pure=options.pure)
        for _ in range(1 + options.rounds):
            before.measure()
            after.measure()
    for each in (before, after):  # the first round made what was missing, such as a snapshot
        del each.seconds[0], each.latencies[0]
    ratio = median(after.latencies) / median(before.latencies)
    more = median(after.seconds) - median(before.seconds)
    print(json.dumps({"ib_write_lat, ratio": round(ratio, 4), "up, seconds more": round(more, 3)}))
    return 0 if ratio <= MOST_LATENCY and more <= MOST_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
