"""Takes a number for a new pair by making and locking the pair's folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper.locks import Lock
from bluebridge.host_tools.keeper.registry import Entry, living, prefix
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
    """Make and lock the folder of the next free number.

    Raises `LabError` when none can be made.
    """
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


def _rename(draft: Path, lock: Lock) -> Claim:
    for number in range(1, _MOST_PAIRS + 1):
        folder = _folder(number)
        check_socket_path(folder / "control.sock")
        # rename(2) fails over a folder that is not empty, or another user's.
        with contextlib.suppress(OSError):
            draft.rename(folder)
            return Claim(number, folder, lock)
    raise LabError(f"there are {_MOST_PAIRS} pairs already", "end some with `bluebridge down`")


def _folder(number: int) -> Path:
    return runtime_root() / f"{prefix()}{number}"
