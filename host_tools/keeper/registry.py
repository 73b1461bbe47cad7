"""Which pairs there are: a folder for each in the runtime root, locked as long as its keeper lives.

The folder `bluebridge-UID-NUMBER` (mode 0700) holds `lock`, `pair.json` and the control socket. It
is locked under another name and then renamed, so whoever sees it with a free lock sees what a
killed keeper left, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper.locks import Lock
from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.lab.folders import check_socket_path, runtime_root

_MOST_PAIRS = 99


class Entry:
    """The folder of a pair."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.folder = folder
        self.lock = folder / "lock"
        self.control = folder / "control.sock"
        """The keeper's control socket."""
        self.description = folder / "pair.json"
        """The pair's `PairRecord`."""

    def alive(self) -> bool:
        """Whether its keeper lives (or is being cleaned up after)."""
        try:
            with Lock(self.lock) as lock:
                return not lock.take(shared=True)
        except OSError:
            return False

    def record(self) -> PairRecord | None:
        """What the keeper says of its pair; None when the pair has just gone."""
        with contextlib.suppress(OSError):
            return PairRecord.read(self.description)
        return None

    def clear(self) -> None:
        """Remove what a dead keeper left; does nothing to an entry in use."""
        with contextlib.suppress(OSError), Lock(self.lock) as lock:
            # Somebody else may have cleared it, and a new pair claimed the number, since.
            if lock.take() and lock.named():
                shutil.rmtree(self.folder, ignore_errors=True)


class Claim(Entry):
    """An entry of our own, locked. After a fork both processes hold it."""

    def __init__(self, number: int, folder: Path, held: Lock) -> None:
        super().__init__(number, folder)
        self.held = held

    def close(self) -> None:
        """Let go of the lock in this process."""
        self.held.close()


def claim() -> Claim:
    """Take the next free number. Raises `LabError` when there is no place for a folder."""
    living()  # numbers of dead pairs are free
    root = runtime_root()
    try:
        draft = Path(tempfile.mkdtemp(prefix=f"{_prefix()}new-", dir=root))
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
        # Over a folder that is not empty, or somebody else's, rename(2) fails.
        with contextlib.suppress(OSError):
            draft.rename(folder)
            return Claim(number, folder, lock)
    raise LabError(f"there are {_MOST_PAIRS} pairs already", "end some with `bluebridge down`")


def living() -> list[Entry]:
    """The pairs of this user in this runtime root, by number; dead ones are cleared away."""
    pattern = re.compile(re.escape(_prefix()) + r"([0-9]+)")
    entries = []
    for path in runtime_root().iterdir():
        if (match := pattern.fullmatch(path.name)) is not None and _ours(path):
            entries.append(Entry(int(match.group(1)), path))
    alive = []
    for entry in sorted(entries, key=lambda each: each.number):
        if entry.alive():
            alive.append(entry)
        else:
            entry.clear()
    return alive


def _prefix() -> str:
    return f"bluebridge-{os.getuid()}-"


def _folder(number: int) -> Path:
    return runtime_root() / f"{_prefix()}{number}"


def _ours(path: Path) -> bool:
    """Whether it is a folder of this user: anybody may make one in /tmp."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
