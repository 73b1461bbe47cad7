"""The script by which two revisions are compared: one revision always logs the same."""

from __future__ import annotations

from pathlib import Path

from tests.campaigns.fixed_script import played


def test_two_plays_log_the_same(tmp_path: Path) -> None:
    one, other = (played(tmp_path / name) for name in ("one", "other"))
    assert one == other
    for told in ("NOT_READY", "NAK", "NO_ANSWER", "RETRIES_USED_UP", "WORK_REFUSED", "LINK"):
        assert any(f" {told} " in line for line in one), told


def test_without_values_all_lines_stay(tmp_path: Path) -> None:
    plain = played(tmp_path / "plain", values=False)
    full = played(tmp_path / "full")
    assert len(plain) == len(full)
    assert "a NOTE" in plain
    assert all(long.startswith(short) for short, long in zip(plain, full, strict=True))
