"""The parent folders of runs and logs, and the longest path that a socket there may have.

Every command imports this module, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from bluebridge.host_tools.errors import LabError, UsageError

_LONGEST_SOCKET_PATH = 107
"""The longest path in bytes: sun_path of sockaddr_un is 108 bytes with its terminating zero."""
_MOST_NAMES = 10_000
"""The names of a user's folder that are tried."""


def runtime_root() -> Path:
    """Return the folder of run folders: the user's runtime folder, or one among temporary files.

    Raises `UsageError` when `XDG_RUNTIME_DIR` names a folder that is not there, `LabError` when
    none can be made.
    """
    root = os.environ.get("XDG_RUNTIME_DIR")
    if root and not os.path.isdir(root):
        raise UsageError(
            f"XDG_RUNTIME_DIR names {root}, which is no folder",
            "make it with `mkdir -m 700`, or unset XDG_RUNTIME_DIR",
        )
    if root and os.access(root, os.W_OK | os.X_OK):
        return Path(root)
    import tempfile  # and all that it imports: most users have a runtime folder

    return _own_folder(tempfile.gettempdir())


def _own_folder(parent: str) -> Path:
    """Return this user's folder of mode 0700 in `parent`, where anybody may make folders.

    Whoever takes its name first keeps nobody from another one, which is found again by its owner.
    """
    name = f"bluebridge-{os.getuid()}"
    try:
        with os.scandir(parent) as entries:
            found = [
                e.name for e in entries if e.name.partition(".")[0] == name and _is_own(e.path)
            ]
        if found:
            return Path(parent, min(found, key=lambda each: (len(each), each)))
        for number in range(_MOST_NAMES):
            path = Path(parent, f"{name}.{number}" if number else name)
            with contextlib.suppress(FileExistsError):
                path.mkdir(0o700)
            if _is_own(path):
                return path
    except OSError as error:
        mend = "free space or set XDG_RUNTIME_DIR"
        raise LabError(f"no folder in {parent}: {error.strerror}", mend) from error
    what = f"{parent} is full of other users' {name}, {name}.1 and so on"
    raise LabError(what, "set XDG_RUNTIME_DIR to a folder of your own")


def _is_own(path: str | Path) -> bool:
    """Whether there is a folder that only this user may use."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    return private and status.st_uid == os.getuid()


def state_root() -> Path:
    """Return the folder of logs of runs: `$XDG_STATE_HOME/bluebridge`."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "bluebridge"


def check_socket_path(path: Path) -> None:
    """Raise `LabError` when `path` is too long for the address of a unix socket."""
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise LabError(f"{path} is too long for a socket", "set XDG_RUNTIME_DIR shorter")
