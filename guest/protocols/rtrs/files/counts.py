"""The files of counts in the directory `stats` of a client's path."""

from __future__ import annotations

import errno
from collections.abc import Callable

from bluebridge.guest.fuse import sysfs
from bluebridge.guest.fuse.tree import Answer, Directory, File, directory
from bluebridge.guest.protocols.rtrs.engine.statistics import Statistics


def statistics(counts: Statistics, migrations: str) -> Directory:
    """Return the directory `stats` of a client's path."""

    def rdma() -> str:
        return (
            f"{counts.reads} {counts.read_bytes} {counts.writes} {counts.write_bytes} "
            f"{counts.inflight} {counts.failovers}\n"
        )

    def reset_rdma() -> None:
        counts.reads = counts.read_bytes = 0
        counts.writes = counts.write_bytes = 0
        counts.failovers = 0

    def reset_reconnects() -> None:
        counts.reconnects = counts.failed_reconnects = 0

    return directory(
        {
            "cpu_migration_from": resettable(lambda: migrations, lambda: None),
            "cpu_migration_to": resettable(lambda: migrations, lambda: None),
            "reconnects": resettable(
                lambda: f"{counts.reconnects} {counts.failed_reconnects}\n", reset_reconnects
            ),
            "rdma": resettable(rdma, reset_rdma),
            "reset_all": resettable(lambda: "echo 1 to reset all statistics\n", counts.reset),
        }
    )


def resettable(read: Callable[[], str], reset: Callable[[], None]) -> File:
    """Return a file of counts, which a write of "1" sets to zero."""

    def write(data: bytes, answer: Answer) -> None:
        if not sysfs.is_word(data, "1"):
            raise OSError(errno.EINVAL, "not 1")
        reset()
        answer.done()

    return File(read, write)
