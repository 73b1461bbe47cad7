"""The time until a lab is ready."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from bluebridge.host_tools.errors import LabError
from bluebridge.images.source import HOME


def up_seconds(times: int, *words: str) -> list[float]:
    """Seconds from typing `bluebridge up` until a command was answered in each guest."""
    return [_up_once(words) for _ in range(times)]


def _up_once(words: tuple[str, ...]) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        env = {**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder}
        begin = time.perf_counter()
        try:
            bluebridge(env, "up", "--quiet", *words)
            # Both at once, as two terminals would.
            answers = [_start(env, "run", name, "hostname") for name in "ab"]
            for answer in answers:
                _finish(answer)
            return time.perf_counter() - begin
        finally:
            bluebridge(env, "down")


def _start(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bluebridge.host_tools.cli", *words],
        env=env,
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    if process.returncode != 0:
        raise LabError(f"bluebridge failed in the bench: {errors.strip()}")
    return output


def bluebridge(env: dict[str, str], *words: str) -> str:
    """Run a command of `bluebridge` in environment `env`; what it prints. Raises `LabError`."""
    return _finish(_start(env, *words))
