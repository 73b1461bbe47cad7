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
import json
import os
import random
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import mutate, targets
from tests.fuzz.steps import CORPUS

HERE = Path(__file__).resolve().parent
FINDINGS = HERE / "findings"
LONGEST, LONGEST_STEPS = 2048, 32768
"""Bytes of an input, and of one that is steps."""
ONE_INPUT_SECONDS = 60
"""Of this machine's clock, for what never ends; `timed_host.STALL_SECONDS` is of processor time."""
SHARES = {"hca": 4, "sockets": 3, "mlx5": 2, "ntb": 2}
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
    with _python("tests.fuzz.coverage") as measuring:
        print(measuring.communicate()[0], end="")
    return status or measuring.returncode


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
    FINDINGS.mkdir(exist_ok=True)
    before = set(_findings())
    with tempfile.TemporaryDirectory() as work:
        statuses = [_report(Path(work), *end, options) for end in _ends(Path(work), names, options)]
    found = sorted(set(_findings()) - (before if options.brief else set()))
    for path in found:
        name = max((each for each in targets.TARGETS if path.name.startswith(each)), key=len)
        print(f"found: python -m tests.fuzz --replay {name} {path}")
        if options.brief:
            print(f"    {b64encode(path.read_bytes()).decode()}")
    return 1 if found or any(statuses) or len(statuses) < len(names) else 0


def _findings() -> Iterator[Path]:
    return (path for path in FINDINGS.glob("*") if path.is_file())


def _ends(work: Path, names: list[str], options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Fuzz targets below a folder, the longest first; yields each with its exit status."""
    workers = min(os.cpu_count() or 1, len(names))
    share = options.seconds * workers / sum(SHARES.get(name, 1) for name in names)
    names = sorted(names, key=lambda name: -SHARES.get(name, 1))
    jobs = [_job(work / name, share * SHARES.get(name, 1), options.brief) for name in names]
    (work / "jobs").write_text("\n".join(map(json.dumps, jobs)))
    with _python("tests.fuzz.one", str(workers), str(work / "jobs")) as started:
        assert started.stdout is not None
        for line in started.stdout:
            number, status = line.split()
            yield names[int(number)], int(status)


def _job(folder: Path, seconds: float, brief: bool) -> list[object]:
    """Return what `tests.fuzz.one` is to do for the target that the folder is named after."""
    name = folder.name
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    for number in range(SEEDS):
        dice = random.Random(number)
        (folder / f"seed{number}").write_bytes(dice.randbytes(LONGEST >> number % 8))
    options = {
        "max_len": LONGEST_STEPS if name in mutate.FORMS else LONGEST,
        "len_control": 0,
        "timeout": ONE_INPUT_SECONDS,
        "report_slow_units": ONE_INPUT_SECONDS,
        "rss_limit_mb": 0,
        "artifact_prefix": f"{FINDINGS / name}-",
    }
    if brief:  # `make test` judges a change, not the luck of a run
        options["seed"] = 1
    words = [f"-{key}={value}" for key, value in options.items()]
    return [f"{folder}.said", name, seconds, *words, str(folder), str(CORPUS / name)]


def _report(work: Path, name: str, status: int, options: argparse.Namespace) -> int:
    """Say what came of a target; unless `brief`, keep what reaches more."""
    said = _last(Path(f"{work / name}.said").read_text(errors="replace"))
    if not options.brief:
        corpus = CORPUS / name
        before = set(os.listdir(corpus))
        with _python("tests.fuzz.keep", name, str(work / name), str(corpus)) as keeping:
            _, trouble = keeping.communicate()
        if keeping.returncode:
            said, status = f"{said}; {_last(trouble)}", status or keeping.returncode
        kept = set(os.listdir(corpus))
        said += f"; {len(kept)} inputs kept, {len(kept - before)} of them new"
    print(f"{name}: {said}", flush=True)
    return status


def _python(module: str, *words: str) -> subprocess.Popen[str]:
    """Run a module interpreted, since only sources can be instrumented."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=HERE.parents[1],
        env=os.environ | {"BLUEBRIDGE_PURE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if module.endswith("keep") else None,
        text=True,
        errors="replace",
    )


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing said"


if __name__ == "__main__":
    sys.exit(main())
