"""Run worlds; the seed of one that fails is printed, and runs it again."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.models.rtrs_world.world import run


def main() -> int:
    """Status 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.rtrs_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    words = parser.parse_args()
    seeds = (
        [words.seed] if words.seed is not None else range(words.first, words.first + words.seeds)
    )
    failed, requests, repeated, started = 0, 0, 0, time.monotonic()
    for seed in seeds:
        try:
            world = run(seed)
            requests += sum(world.disk.executed.values())
            repeated += sum(count > 1 for count in world.sent.values())
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"seed {seed} failed; again with --seed {seed}", flush=True)
    seconds = time.monotonic() - started
    print(f"{len(seeds)} worlds in {seconds:.0f} s, {failed} failed;")
    print(f"{requests} requests served, {repeated} of them sent more than once")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
