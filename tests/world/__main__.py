"""Run worlds of a kind; the seed of one that fails is printed, and runs it again."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable

from tests.world import connection, paging
from tests.world.ntrdma import survival
from tests.world.ntrdma import world as ntrdma
from tests.world.rtrs import world as rtrs
from tests.world.verbs import world as verbs

Run = Callable[..., Counter[str]]
"""Run the world of a seed; what happened in it, how often."""

WORLDS: dict[str, Run] = {
    "ntrdma": ntrdma.replay,
    "connection": connection.replay,
    "paging": paging.replay,
    "rtrs": rtrs.replay,
    "survival": survival.replay,
    "verbs": verbs.replay,
}


def main() -> int:
    """Status 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("world", choices=WORLDS, help="a kind of worlds")
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--faults", help="only these, with commas between (rtrs)")
    words = parser.parse_args()
    more = (words.faults.split(","),) if words.faults else ()
    seeds = range(words.first, words.first + words.seeds)
    if words.seed is not None:
        seeds = range(words.seed, words.seed + 1)
    failed, happened, started = 0, Counter[str](), time.monotonic()
    for seed in seeds:
        try:
            happened += WORLDS[words.world](seed, *more)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"failed; again: python -m tests.world {words.world} --seed {seed}", flush=True)
    print(f"{len(seeds)} worlds in {time.monotonic() - started:.0f} s, {failed} failed")
    print(", ".join(f"{count} {what}" for what, count in sorted(happened.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
