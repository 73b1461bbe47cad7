"""Removes the folder of a pair when its keeper ends, even by a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bluebridge.host_tools.keeper.claims import Claim
from bluebridge.host_tools.processes import folder_removal


@contextlib.contextmanager
def removed_at_end(claim: Claim) -> Iterator[None]:
    """Remove the folder of `claim` at the end of the block, or when this process is killed.

    Its number stays taken until the folder is gone: the process that removes it holds a copy of
    the lock.
    """
    try:
        with folder_removal.removed_at_end(claim.folder, (claim.held.descriptor,)):
            yield
    finally:
        claim.close()
