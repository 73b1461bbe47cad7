"""Removes a folder when this process ends, even if it is killed with SIGKILL."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_SCRIPT = 'read -r _; rm -rf -- "$1"'


@contextlib.contextmanager
def removed_at_end(folder: Path, keep_open: Sequence[int] = ()) -> Iterator[None]:
    """Remove `folder` and all that is in it at the end of the block, or when this process ends.

    A shell waits for the end of a pipe that only this process writes to, then removes the folder.
    It inherits the descriptors `keep_open` and closes them after that.
    """
    shell = subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT, "bluebridge-remove-folder", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        pass_fds=keep_open,
    )
    try:
        yield
    finally:
        assert shell.stdin is not None
        shell.stdin.close()
        if shell.wait():  # it was killed
            shutil.rmtree(folder, ignore_errors=True)
