"""Lines by room, and their change since the last release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import size


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of some files, all of them committed."""
    _write(tmp_path, {"device/rdma/a.py": 3, "device/b.py": 2, "tests/unit/test_c.py": 5})
    _write(tmp_path, {"tests/models/d.py": 7, "tests/fuzz/corpus/hca/e": 9, "docs/f.md": 11})
    (tmp_path / "images").mkdir()
    (tmp_path / "images/picture.png").write_bytes(b"\n\0\n")
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    return tmp_path


def _write(root: Path, files: dict[str, int]) -> None:
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a line\n" * lines)


def _git(root: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=root, check=True
    )


def _commit(root: Path) -> None:
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message", "one")


def _said(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    assert size.main(words, root) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_lines_without_a_release(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *rows = _said(tree, capsys)
    assert " ".join(first) == "lines; no release tag to compare with"
    assert rows == [
        ["2", "device"],
        ["3", "device/rdma"],
        ["0", "images"],
        ["7", "tests/models"],
        ["5", "tests/unit"],
        ["5", "product"],
        ["12", "tests"],
        ["7", "of", "them", "support"],
    ]


def test_the_change_since_a_release(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that moved came to one room and went from another, committed or not."""
    _git(tree, "tag", "v1")
    (tree / "device/rdma/a.py").rename(tree / "device/b.py")
    _commit(tree)
    _write(tree, {"tests/models/d.py": 10})
    first, *rows = _said(tree, capsys)
    assert " ".join(first) == "lines, and the change since v1"
    assert rows == [
        ["3", "+1", "device"],
        ["0", "-3", "device/rdma"],
        ["0", "+0", "images"],
        ["10", "+3", "tests/models"],
        ["5", "+0", "tests/unit"],
        ["3", "-2", "product"],
        ["15", "+3", "tests"],
        ["10", "+3", "of", "them", "support"],
    ]


def test_a_commit_that_is_none(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert size.main(["--since", "v9"], tree) == 2
    assert capsys.readouterr().err.startswith("size: fatal: bad revision 'v9'")
