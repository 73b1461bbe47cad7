"""The parent folders of runs and logs, and the longest path that a socket there may have.

Every command imports this module, so it imports little.
"""

from __future__ import annotations

import os
from pathlib import Path

from bluebridge.host_tools.errors import LabError, UsageError

_LONGEST_SOCKET_PATH = 107
"""The longest path in bytes: sun_path of sockaddr_un is 108 bytes with its terminating zero."""


def runtime_root() -> Path:
    """Return the folder of run folders: the user's runtime folder, or that for temporary files.

    Raises `UsageError` when `XDG_RUNTIME_DIR` names a folder that is not there.
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

    return Path(tempfile.gettempdir())


def state_root() -> Path:
    """Return the folder of logs of runs: `$XDG_STATE_HOME/bluebridge`."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "bluebridge"


def check_socket_path(path: Path) -> None:
    """Raise `LabError` when `path` is too long for the address of a unix socket."""
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise LabError(f"{path} is too long for a socket", "set XDG_RUNTIME_DIR shorter")
