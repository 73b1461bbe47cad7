"""The folders of a run: a private one for sockets, which is always removed, and one for logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.roots import check_socket_path, runtime_root, state_root
from bluebridge.host_tools.processes import removed_at_end

_KEPT_RUNS = 10


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Yield a new folder of mode 0700 for sockets; it is removed even if this process is killed.

    Raises `LabError` when it cannot be made, or its path is too long for sockets.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="bluebridge-", dir=runtime_root()))
    except OSError as error:
        raise LabError(f"no run folder: {error}", "free space or set XDG_RUNTIME_DIR") from error
    try:
        check_socket_path(folder / "console-b99.sock")
    except LabError:
        folder.rmdir()
        raise
    with removed_at_end(folder):
        yield folder


def log_folder(chosen: Path | None) -> Path:
    """Return the folder for bus log and transcripts: `chosen`, or a new one.

    A new one is made among the last ten runs; older ones are removed. Raises `LabError`.
    """
    folder = chosen
    if folder is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = state_root() / f"run-{stamp}-{os.getpid()}"
        _forget_old_runs(state_root())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(folder)
    except OSError as error:
        raise LabError(
            f"cannot write the log folder {folder}: {error.strerror}",
            "free space there or choose another with --log DIR",
        ) from error
    return folder.resolve()


def _check_space(folder: Path) -> None:
    """Raises `OSError` when there is no room for the beginning of a log."""
    probe = folder / ".space"
    try:
        probe.write_bytes(bytes(1 << 20))
    finally:
        probe.unlink(missing_ok=True)


def keep_logs(folder: Path) -> int:
    """Protect the log folder of a run from other runs; returns the descriptor to keep open.

    Raises `LabError` when another run writes there: each would spoil the other's bus log.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LabError(
            f"another run writes to the log folder {folder}", "choose another with --log DIR"
        ) from None
    return descriptor


def _forget_old_runs(root: Path) -> None:
    """Keep the newest runs only, and those still in use; the names sort by time."""
    runs = sorted(root.glob("run-*")) if root.is_dir() else []
    for old in runs[: max(0, len(runs) - _KEPT_RUNS + 1)]:
        if not _in_use(old):
            shutil.rmtree(old, ignore_errors=True)


def _in_use(folder: Path) -> bool:
    try:
        os.close(keep_logs(folder))
    except OSError:
        return False
    except LabError:
        return True
    return False
