"""`bluebridge bisect` without guests: revisions are checked out aside, built, judged, skipped."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.commands import bisect
from bluebridge.host_tools.errors import LabError, UsageError

BUILD = 'test ! -e broken && cp value "$BLUEBRIDGE_BUILT"'
IS_GOOD = 'test "$(cat "$BLUEBRIDGE_OVERLAY/value")" -lt 5'


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight revisions of a value; tests of it fail from 5 on, and 4 does not build."""
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path / "cache"))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    (tmp_path / "cache").mkdir()
    folder = tmp_path / "mine"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(1, 9):
        (folder / "value").write_text(f"{number}\n")
        (folder / "broken").unlink(missing_ok=True)
        if number == 4:
            (folder / "broken").touch()
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"value {number}")
        git(folder, "tag", f"v{number}")
    return folder


def run(*words: str) -> int:
    return bisect.main(parse(["bisect", *words]))


def test_the_first_bad_revision_is_found_and_nothing_is_left(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = git(repository, "status", "--porcelain", "--branch")
    assert run(str(repository), "v1", "v8", "--build", BUILD, "--", "sh", "-c", IS_GOOD) == 1
    # 4 is between the last good and the first bad one, and cannot be built.
    assert "none of the revisions left could be tested" in capsys.readouterr().out
    assert run(str(repository), "v5", "v8", "--build", BUILD, "--", "sh", "-c", "false") == 0
    told = capsys.readouterr().out
    assert "value 6" in told.partition("the first bad revision")[2]
    assert git(repository, "status", "--porcelain", "--branch") == before
    assert git(repository, "worktree", "list").count("\n") == 0
    assert os.listdir(os.environ["BLUEBRIDGE_CACHE"]) == []


def test_a_revision_that_does_not_build_is_skipped_with_its_reason(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = f"{BUILD} || {{ echo no value here; exit 3; }}"
    run(str(repository), "v3", "v5", "--build", build, "--", "true")
    assert "skip after 0 s: --build ended with status 3: no value here" in capsys.readouterr().out


def test_a_command_that_is_killed_ends_the_search(repository: Path) -> None:
    with pytest.raises(LabError, match="the command was stopped"):
        run(str(repository), "v1", "v8", "--build", BUILD, "--", "sh", "-c", "kill -9 $$")
    assert git(repository, "worktree", "list").count("\n") == 0


def test_what_cannot_be_bisected_is_one_line(repository: Path) -> None:
    with pytest.raises(UsageError, match="there is no command"):
        run(str(repository), "v1", "v8")
    with pytest.raises(LabError, match="git rev-parse v99"):
        run(str(repository), "v99", "v8", "--", "true")
    with pytest.raises(UsageError, match="neither a kernel's tree nor a folder for kmod"):
        run(str(repository), "v1", "v8", "--", "true")
