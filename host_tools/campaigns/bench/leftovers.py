"""Resources that must not grow when guests are started and ended: processes, files, memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Resources:
    """Resources in use, each as a number."""

    processes: int
    """Descendants of this process; guest memory goes with them."""
    files: int
    """Files and sockets in the run folders."""
    descriptors: int
    """Open files of this process and of the device server."""
    disk: int
    """Bytes in log and run folders but for the logs of the run itself."""
    memory: int
    """Anonymous resident bytes of this process and of the device server."""


def count_resources(folder: Path, *servers: int) -> Resources:
    """Count what this process, device servers and `folder` without its `log` use now."""
    pids = [os.getpid(), *servers]
    files = [path for path in folder.rglob("*") if folder / "log" not in path.parents]
    return Resources(
        processes=len(_descendants(os.getpid())),
        files=len(files),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        disk=sum(path.stat().st_blocks * 512 for path in files if path.is_file()),
        memory=sum(_anonymous(pid) for pid in pids),
    )


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += [int(word) for word in (task / "children").read_text().split()]
    return children + [found for child in children for found in _descendants(child)]


def _anonymous(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
