"""What the tests of runs of suites have in common."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.run.turns import Kept

BEGAN = time.strptime("2026-11-22 06:00:00", "%Y-%m-%d %H:%M:%S")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """What stays of a run."""
    return Kept(tmp_path / "unsteady", lambda: BEGAN)
