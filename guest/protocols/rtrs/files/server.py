"""The files of a server's sessions, as in the kernel's rtrs-srv-sysfs.c."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from bluebridge.guest.fuse.sysfs import command, text
from bluebridge.guest.fuse.tree import Answer, Directory, Node, directory
from bluebridge.guest.protocols.rtrs.engine.interface import PathStatus, SessionStatus
from bluebridge.guest.protocols.rtrs.engine.server.server import Server
from bluebridge.guest.protocols.rtrs.engine.statistics import Statistics
from bluebridge.guest.protocols.rtrs.files.addresses import address_text, pair_text
from bluebridge.guest.protocols.rtrs.files.client import Call
from bluebridge.guest.protocols.rtrs.files.counts import resettable


class ServerFiles:
    """The tree of files of a server, with a directory for each session with a connected path."""

    def __init__(self, engine: Server, call: Call) -> None:
        self._engine = engine
        self._call = call
        self.tree = Directory(self._sessions)

    def _sessions(self) -> Mapping[str, Node]:
        return {
            session.name.replace("/", "!"): directory({"paths": self._paths(session)})
            for session in self._engine.sessions
            if _shown(session)
        }

    def _paths(self, session: SessionStatus) -> Directory:
        return directory({pair_text(path.addresses): self._path(path) for path in _shown(session)})

    def _path(self, path: PathStatus) -> Directory:
        return directory(
            {
                "hca_name": text(lambda: path.hca),
                "hca_port": text(lambda: path.port),
                "src_addr": text(lambda: address_text(path.addresses.source)),
                "dst_addr": text(lambda: address_text(path.addresses.destination)),
                "disconnect": command("disconnect", lambda answer: self._disconnect(path, answer)),
                "stats": _statistics(path.statistics),
            }
        )

    def _disconnect(self, path: PathStatus, answer: Answer) -> None:
        """Disconnect a path and answer at once."""
        try:
            self._call(lambda now: self._engine.disconnect_path(path.path, now))
        except ValueError:
            raise OSError(errno.ENODEV, "the path has gone") from None
        answer.done()


def _shown(session: SessionStatus) -> list[PathStatus]:
    """Return the connected paths, which have files from INFO_REQ until they close."""
    return [path for path in session.paths if path.state == "connected"]


def _statistics(counts: Statistics) -> Directory:
    def rdma() -> str:
        return f"{counts.reads} {counts.read_bytes} {counts.writes} {counts.write_bytes}\n"

    reset: Callable[[], None] = counts.reset
    return directory({"rdma": resettable(rdma, reset)})
