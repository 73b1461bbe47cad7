"""What one more test costs `make test`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bluebridge.host_tools.campaigns.bench.figures import Figure
from bluebridge.host_tools.campaigns.bench.growth.series import series
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.progress import Progress
from bluebridge.images.source import HOME

TESTS = (1, 100, 1_000)
_ROUNDS = 3
_TEXT = """
def test_number_{number}(tmp_path):
    assert str(tmp_path) != ""
"""


def figures(progress: Progress) -> list[Figure]:
    """Everything of this module. Raises `LabError`."""
    progress("tests that are added")
    whole: dict[int, float] = {}
    for count in TESTS:
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "test_added.py"
            file.write_text("".join(_TEXT.format(number=number) for number in range(count)))
            whole[count] = min(_pytest_seconds(str(file)) for _ in range(_ROUNDS))
    least = min(whole)
    added = {
        count: (seconds - whole[least]) / (count - least) * 1e3
        for count, seconds in whole.items()
        if count != least
    }
    collected = min(_pytest_seconds("tests/unit", "tests/wire", "--collect-only") for _ in range(2))
    return [
        *series("tests", "pytest of as many tests that do nothing: processor time", "s", whole),
        *series("test_added", "each of them after the first", "ms", added),
        *series("collect", "collecting `tests/unit` and `tests/wire`", "s", {1: collected}),
    ]


def _pytest_seconds(*words: str) -> float:
    """Processor time of pytest with the settings of this tree, its compiled modules kept."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", str(HOME / "pyproject.toml"), *words],
        cwd=HOME,
        env=env,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise LabError("pytest failed in the bench", transcript=done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
