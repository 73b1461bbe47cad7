"""OSErrors and failures of pip as one line with the remedy."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.images import environment
from bluebridge.images.report import of_system

ROOT = Path(__file__).parents[3]
UNREACHABLE = """\
WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)'
ERROR: Could not find a version that satisfies the requirement setuptools>=68
ERROR: No matching distribution found for setuptools>=68
"""


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.ENOSPC, "the disk of /x is full; to mend it: free some space"),
        (errno.EDQUOT, "the disk of /x is full; to mend it: free some space"),
        (errno.EACCES, "cannot write /x: Permission denied; to mend it: set BLUEBRIDGE_CACHE"),
        (errno.EROFS, "cannot write /x: Read-only file system; to mend it: set BLUEBRIDGE_CACHE"),
        (errno.ENOMEM, "out of memory; to mend it: end other programs"),
        (errno.EMFILE, "Too many open files; to mend it: raise the limit"),
        (errno.EIO, "/x: Input/output error; to mend it: "),
    ],
)
def test_each_oserror_names_its_remedy(number: int, line: str) -> None:
    told = str(of_system(OSError(number, os.strerror(number)), "/x"))
    assert line in told
    assert "\n" not in told


@pytest.mark.parametrize("command", ["build", "refresh"])
def test_an_impossible_cache_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "bluebridge.images", command],
        cwd=ROOT,
        env={**os.environ, "BLUEBRIDGE_CACHE": str(tmp_path / "file" / "below")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Not a directory; to mend it: set BLUEBRIDGE_CACHE" in done.stderr


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (UNREACHABLE, "the package index cannot be reached; to mend it: check the network"),
        ("NewConnectionError [SSL: CERTIFICATE_VERIFY_FAILED] x\n", "certificates in PIP_CERT"),
        ("noise\nERROR: No matching distribution found for rich>=13\n", "found for rich>=13"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("", "exit status 2"),
    ],
)
def test_pips_failure_is_one_line(output: str, line: str) -> None:
    told = str(environment.failure(output, 2))
    assert line in told
    assert "\n" not in told
