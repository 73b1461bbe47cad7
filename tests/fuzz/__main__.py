"""`python -m tests.fuzz [--seconds N] [TARGET ...]`: fuzz, keep what is new, print the coverage.

    python -m tests.fuzz --brief --seconds 30      what `make test` does: nothing is kept
    python -m tests.fuzz --replay TARGET FILE      one input again, with its traceback
    python -m tests.fuzz --coverage                coverage of the corpora as they are

Findings are files in `tests/fuzz/findings`; the exit status is then 1, as it is when a target could
not be fuzzed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from tests.fuzz import mutate, targets

HERE = Path(__file__).resolve().parent
CORPUS, FINDINGS = HERE / "corpus", HERE / "findings"
LONGEST, LONGEST_STEPS = 2048, 16384
"""Bytes of an input, and of one that is steps."""
ONE_INPUT_SECONDS = 60
"""Of this machine's clock, for what never ends; `timed_host.STALL_SECONDS` is of processor time."""
START_SECONDS = 4
"""Until a target is imported and instrumented."""
LEAST_SECONDS = START_SECONDS + 2.0
"""Of each target, however long those before it took: none is left out."""
SHARES = {"hca": 4, "sockets": 3, "ntb": 2}
"""Of the time, for targets that reach most; others have one."""
MISSING = "fuzz: no atheris for this Python, so the corpora are replayed only (tests/unit)"
SEEDS = 24
"""Random inputs to start from besides the corpus, of many lengths."""


def main() -> int:
    """Exit status 0 when nothing was found."""
    options = _options()
    if options.replay:
        name, path = options.replay
        targets.run(name, Path(path).read_bytes())
        return 0
    if options.brief and importlib.util.find_spec("atheris") is None:
        print(MISSING)
        return 0
    status = 0 if options.coverage else fuzz(options.targets or list(targets.TARGETS), options)
    if options.brief:
        return status
    subprocess.run(
        [sys.executable, "-m", "tests.fuzz.coverage"],
        cwd=HERE.parents[1],
        env=os.environ | {"BLUEBRIDGE_PURE": "1"},
        check=True,
    )
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets.TARGETS))
    parser.add_argument("--seconds", type=int, default=600, help="for all targets (default 600)")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"))
    parser.add_argument("--brief", action="store_true", help="keep nothing, print no coverage")
    parser.add_argument("--coverage", action="store_true", help="fuzz nothing")
    return parser.parse_args()


def fuzz(names: list[str], options: argparse.Namespace) -> int:
    """Fuzz the targets side by side; the exit status."""
    workers = min(os.cpu_count() or 1, len(names))
    share = options.seconds * workers / sum(SHARES.get(name, 1) for name in names)
    FINDINGS.mkdir(exist_ok=True)
    before = set(_findings())
    plan = Plan({name: share * SHARES.get(name, 1) for name in names}, options.seconds, workers)
    with ThreadPoolExecutor(workers) as pool:  # the longest first, so that all end together
        order = sorted(random.sample(names, len(names)), key=lambda name: -SHARES.get(name, 1))
        statuses = list(pool.map(lambda name: _report(name, plan, options.brief), order))
    found = sorted(set(_findings()) - (before if options.brief else set()))
    for path in found:
        name = max((each for each in targets.TARGETS if path.name.startswith(each)), key=len)
        print(f"found: python -m tests.fuzz --replay {name} {path}")
        if options.brief:
            print(f"    {b64encode(path.read_bytes()).decode()}")
    return 1 if found or any(statuses) else 0


class Plan:
    """The seconds of each target, which get shorter when targets before it took longer."""

    def __init__(self, seconds: dict[str, float], limit: float, workers: int) -> None:
        self._seconds, self._workers = seconds, workers
        self._until = time.monotonic() + limit
        self._begun: dict[str, float] = {}
        self._lock = Lock()

    def begin(self, name: str) -> float:
        """Return the seconds of a target that begins now, a few also when none are left."""
        with self._lock:
            now = time.monotonic()
            wanted = sum(
                max(0.0, seconds - now + self._begun.get(each, now))
                for each, seconds in self._seconds.items()
            )
            self._begun[name] = now
            late = (self._until - now) * self._workers / wanted
            return max(self._seconds[name] * min(1.0, late), LEAST_SECONDS)

    def end(self, name: str) -> None:
        """Note that a target has ended."""
        with self._lock:
            del self._seconds[name]


def _findings() -> Iterator[Path]:
    return (path for path in FINDINGS.glob("*") if path.is_file())


def _report(name: str, plan: Plan, brief: bool) -> int:
    """Fuzz a target and say what came of it."""
    status, said = _one(name, plan.begin(name), brief)
    plan.end(name)
    print(said, flush=True)
    return status


def _one(name: str, planned: float, brief: bool) -> tuple[int, str]:
    """Fuzz a target from its corpus, then, unless `brief`, keep what reaches more.

    The exit status of either that did not end well, else 0, and a line about both.
    """
    seconds = max(1, round(planned) - START_SECONDS)
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for number in range(SEEDS):
            dice = random.Random(number)
            Path(work, f"seed{number}").write_bytes(dice.randbytes(LONGEST >> number % 8))
        longest = LONGEST_STEPS if name in mutate.FORMS else LONGEST
        prefix = f"-artifact_prefix={FINDINGS / name}-"
        limits = [f"-max_len={longest}", "-len_control=0", f"-timeout={ONE_INPUT_SECONDS}"]
        limits += [f"-max_total_time={seconds}", "-rss_limit_mb=0", prefix]
        limits.append(f"-report_slow_units={ONE_INPUT_SECONDS}")
        if brief:  # `make test` judges a change, not the luck of a run
            limits.append("-seed=1")
        status, said = _run("tests.fuzz.one", name, *limits, work, str(corpus))
        if brief:
            return status, f"{name}: {said}"
        before = {path.name for path in corpus.iterdir()}
        unkept, trouble = _run("tests.fuzz.keep", name, work, str(corpus))
        kept = {path.name for path in corpus.iterdir()}
    if unkept:
        said = f"{said}; {trouble}"
    return (
        status or unkept,
        f"{name}: {said}; {len(kept)} inputs kept, {len(kept - before)} of them new",
    )


def _run(module: str, *words: str) -> tuple[int, str]:
    """Its exit status and its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=HERE.parents[1],
        env=os.environ | {"BLUEBRIDGE_PURE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return done.returncode, lines[-1] if lines else f"exit status {done.returncode}"


if __name__ == "__main__":
    sys.exit(main())
