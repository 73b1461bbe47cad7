"""Which modules a server in its sandbox may still load."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bluebridge.device import sandbox


def test_folders_that_this_user_cannot_reach_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python itself passes over them, too."""
    exists = Path.exists

    def reached(path: Path) -> bool:
        if path == tmp_path / "private":
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", reached)
    for name in ("private", "absent"):
        monkeypatch.setattr(sys, "path", [str(tmp_path / name), str(tmp_path)])
        found = sandbox._sources()
        assert tmp_path in found and tmp_path / name not in found
