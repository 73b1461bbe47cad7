"""The worked example of docs/your-kernel.md: one build and one pair of guests for each step."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.models.lab_commands import PATIENCE, ROOT, Commands

pytestmark = pytest.mark.timeout(3 * PATIENCE)


SOMEBODY = """\
export GIT_AUTHOR_NAME=somebody GIT_AUTHOR_EMAIL=somebody@example.org
export GIT_COMMITTER_NAME=somebody GIT_COMMITTER_EMAIL=somebody@example.org
"""


@pytest.mark.full
def test_the_example_finds_the_revision(bluebridge: Commands, tmp_path: Path) -> None:
    page = (ROOT / "docs/your-kernel.md").read_text()
    making, script, search = (
        block(page, start) for start in ("git init -q sum", "#!/bin/sh", "bluebridge bisect sum")
    )
    (tmp_path / "test.sh").write_text(script)
    (tmp_path / "test.sh").chmod(0o755)
    bluebridge.shell(SOMEBODY + making, tmp_path)
    command, _, printed = search.partition("\n")
    told = bluebridge.shell(command, tmp_path)
    assert _shape(told).startswith(_shape(printed.partition("…")[0])), told
    assert "    sum: revision 11\n" in told


def block(page: str, start: str) -> str:
    """Return the indented block of a page that begins with `start`."""
    (block,) = re.findall(rf"^    {re.escape(start)}.*\n(?:(?:    .*)?\n)*", page, re.MULTILINE)
    return textwrap.dedent(block).rstrip() + "\n"


def _shape(told: str) -> str:
    """Return the output of a search without names of revisions, and without seconds."""
    return re.sub(r"\b\d+ s\b", "N s", re.sub(r"\b[0-9a-f]{7,40}\b", "REVISION", told))
