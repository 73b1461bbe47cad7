"""The folder of a new pair: made and locked to take its number, removed when its keeper ends."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper.registry import Entry, Lock, living, prefix, strangers
from bluebridge.host_tools.lab.roots import check_socket_path, runtime_root

_MOST_PAIRS = 99


class Claim(Entry):
    """The locked folder of a new pair of ours. After a fork both processes hold its lock."""

    def __init__(self, number: int, folder: Path, held: Lock) -> None:
        super().__init__(number, folder)
        self.held = held

    def close(self) -> None:
        """Release the lock in this process."""
        self.held.close()


def claim_number() -> Claim:
    """Make and lock the folder of the next free number. Raises `LabError` when none can be made."""
    living()  # numbers of dead pairs are free
    root = runtime_root()
    try:
        draft = Path(tempfile.mkdtemp(prefix=f"{prefix()}new-", dir=root))
    except OSError as error:
        raise LabError(
            f"no folder in {root}: {error.strerror}", "free space or set XDG_RUNTIME_DIR"
        ) from error
    lock = Lock(draft / "lock", create=True)
    lock.take()
    try:
        return _rename(draft, lock)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        lock.close()
        raise


def next_number() -> int:
    """Return the number that the next pair gets if nobody else begins one."""
    taken = {entry.number for entry in living()}
    return next(number for number in range(1, _MOST_PAIRS + 2) if number not in taken)


def _rename(draft: Path, lock: Lock) -> Claim:
    for number in range(1, _MOST_PAIRS + 1):
        folder = runtime_root() / f"{prefix()}{number}"
        check_socket_path(folder / "control.sock")
        # rename(2) fails over a folder that is not empty, or another user's.
        with contextlib.suppress(OSError):
            draft.rename(folder)
            return Claim(number, folder, lock)
    if blocking := strangers():
        taken = f"{len(blocking)} of the {_MOST_PAIRS} numbers of pairs are taken by others"
        mend = "set XDG_RUNTIME_DIR to a folder of your own"
        raise LabError(f"{taken}, the first by {blocking[0]}", mend)
    raise LabError(f"there are {_MOST_PAIRS} pairs already", "end some with `bluebridge down`")


@contextlib.contextmanager
def removed_at_end(claim: Claim) -> Iterator[None]:
    """Remove the folder of `claim` at the end of the block, or when this process is killed.

    Its number stays taken until the folder is gone: the process that removes it holds a copy of
    the lock.
    """
    try:
        with processes.removed_at_end(claim.folder, (claim.held.descriptor,)):
            yield
    finally:
        claim.close()
