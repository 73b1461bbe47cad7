"""Somebody who removes a pair's folder when its keeper is gone, however it went."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from bluebridge.host_tools.keeper.claims import Claim


@contextlib.contextmanager
def janitor(claim: Claim) -> Iterator[None]:
    """Have the entry removed at the end, or when this process is killed.

    The janitor waits for the end of a pipe that only this process writes to. It holds a copy of the
    lock, so nobody takes the number for free before the folder is gone.
    """
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; rm -rf -- "$1"', "bluebridge-janitor", str(claim.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        pass_fds=(claim.held.descriptor,),
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        claim.close()
