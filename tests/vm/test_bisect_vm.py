"""The worked example of docs/your-kernel.md: one build and one pair of guests for each step."""

from __future__ import annotations

import re
import textwrap
import urllib.request
from pathlib import Path

import pytest

from bluebridge.images.apt import debian_mirror
from tests.models.lab_commands import PATIENCE, ROOT, Commands

pytestmark = pytest.mark.timeout(3 * PATIENCE)


SOURCE = "pool/main/r/rdma-core/rdma-core_56.1.orig.tar.gz"
"""The path, on a mirror, of the source of the guests' rdma-core."""
SOMEBODY = """\
export GIT_AUTHOR_NAME=somebody GIT_AUTHOR_EMAIL=somebody@example.org
export GIT_COMMITTER_NAME=somebody GIT_COMMITTER_EMAIL=somebody@example.org
"""


@pytest.mark.full
def test_the_example_finds_the_revision(bluebridge: Commands, tmp_path: Path) -> None:
    page = (ROOT / "docs/your-kernel.md").read_text()
    making, script, search = (
        block(page, start)
        for start in (
            "git init -q sum",
            "#!/bin/sh\n    bluebridge up --bare",
            "bluebridge bisect sum",
        )
    )
    (tmp_path / "test.sh").write_text(script)
    (tmp_path / "test.sh").chmod(0o755)
    bluebridge.shell(SOMEBODY + making, tmp_path)
    command, _, printed = search.partition("\n")
    told = bluebridge.shell(command, tmp_path)
    assert _shape(told).startswith(_shape(printed.partition("…")[0])), told
    assert "    sum: revision 11\n" in told


@pytest.mark.long
def test_the_example_of_a_library_finds_the_revision(bluebridge: Commands, tmp_path: Path) -> None:
    """It needs cmake, ninja and libnl, as the page says, and the source from a mirror of Debian."""
    page = (ROOT / "docs/your-kernel.md").read_text()
    with urllib.request.urlopen(f"{debian_mirror()}/{SOURCE}", timeout=PATIENCE) as response:
        (tmp_path / "source.tar.gz").write_bytes(response.read())
    unpacking = "mkdir rdma-core && tar -xf source.tar.gz -C rdma-core --strip-components 1"
    bluebridge.shell(unpacking, tmp_path)
    for name, start in (
        ("provider.sh", "#!/bin/sh -e"),
        ("resize.sh", "#!/bin/sh\n    bluebridge up --host"),
    ):
        (tmp_path / name).write_text(block(page, start))
        (tmp_path / name).chmod(0o755)
    bluebridge.shell(SOMEBODY + block(page, "git -C rdma-core init"), tmp_path)
    command, _, printed = block(page, "bluebridge bisect --build").partition("\n")
    told = bluebridge.shell(command, tmp_path)
    assert _shape(told).startswith(_shape(printed.partition("…")[0])), told
    assert "    mlx4: revision 11\n" in told


def block(page: str, start: str) -> str:
    """Return the indented block of a page that begins with `start`."""
    (block,) = re.findall(rf"^    {re.escape(start)}.*\n(?:(?:    .*)?\n)*", page, re.MULTILINE)
    return textwrap.dedent(block).rstrip() + "\n"


def _shape(told: str) -> str:
    """Return the output of a search without names of revisions, and without seconds."""
    return re.sub(r"\b\d+ s\b", "N s", re.sub(r"\b[0-9a-f]{7,40}\b", "REVISION", told))
