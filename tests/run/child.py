"""A test runner as a child process that ends with its parent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.processes.termination import termination_as_exception

ROOT = Path(__file__).resolve().parents[2]


def run_module(words: Sequence[str], folder: Path = ROOT) -> int:
    """Run `python -m WORDS...` in `folder`; returns its exit status.

    Ctrl-C reaches parent and child alike; SIGTERM and SIGHUP are handed on. The child ends in its
    own order before this raises `KeyboardInterrupt` or `SystemExit`.
    """
    with (
        termination_as_exception(),
        subprocess.Popen([sys.executable, "-m", *words], cwd=folder) as child,
    ):
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.wait()  # `Popen` itself waits for a quarter of a second only
            raise
        except SystemExit:
            child.terminate()
            raise
