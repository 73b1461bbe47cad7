"""An exported cache on a machine that has nothing else: a pair starts from its snapshot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_a_pair_starts_from_an_imported_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It builds nothing, asks no mirror and boots no guest first."""
    file = tmp_path / "cache.tar.zst"
    _bluebridge("cache", "export", str(file))
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("BLUEBRIDGE_MIRROR", "http://nowhere.invalid")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    _bluebridge("cache", "import", str(file))
    string = "addr=192.168.69.127,port=9999,count=3"
    done = _bluebridge("krping", f"server,{string}", f"client,{string}")
    assert "images:" not in done.stderr.replace("images: does KVM", "")


def _bluebridge(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "bluebridge.host_tools.cli", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
