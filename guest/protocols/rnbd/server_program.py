"""`python3 -m bluebridge.guest.protocols.rnbd server`."""

from __future__ import annotations

import argparse
import contextlib

from bluebridge.guest.protocols.rnbd.backend.specification import export_of
from bluebridge.guest.protocols.rnbd.engine.server import RnbdServer
from bluebridge.guest.protocols.rnbd.files.server import ServerFiles
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    Closed,
    PathChanged,
    Serve,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.engine.server.server import Server
from bluebridge.guest.protocols.rtrs.files.served import served
from bluebridge.guest.protocols.rtrs.files.server import ServerFiles as RtrsFiles
from bluebridge.guest.protocols.rtrs.program import CLOSE_SECONDS, on_signals, server_settings
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.sides import ServerSide


class ServerProgram:
    """Exports until a signal comes. Raises `ValueError` and `OSError` for wrong exports."""

    def __init__(self, given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> None:
        exports = [export_of(words) for words in given.export]
        settings = server_settings(given)
        self._loop = loop
        self._closed = False
        self._names = [export.name for export in exports]
        self.side = ServerSide(
            interfaces, loop, lambda memory: Server(memory, settings), self._take, given.port
        )
        self.server = RnbdServer(self.side.engine, self.side.chunks, exports, log)
        self._trees = {
            "rtrs-server": RtrsFiles(self.side.engine, self.side.transport.call).tree,
            "rnbd-server": ServerFiles(self.server).tree,
        }

    def run(self) -> int:
        """Serve until a signal; returns the exit status."""
        try:
            with on_signals(self._loop.stop), contextlib.ExitStack() as stack:
                for place, tree in self._trees.items():
                    stack.enter_context(served(self._loop, place, tree, log))
                log(f"serving {' '.join(self._names)}")
                self._loop.run()
            self.side.transport.call(self.side.engine.close)
            self._loop.run_until(lambda: self._closed, CLOSE_SECONDS)
        finally:
            self.side.close()
        return 0

    def _take(self, action: Action) -> None:
        """Take an action of the RTRS server that is not its transport's."""
        if isinstance(action, Serve):
            self.server.handle(action, self._loop.now())
        elif isinstance(action, SessionUp | SessionDown):
            self.server.handle(action, self._loop.now())
            log(f"session {action.session} {'up' if isinstance(action, SessionUp) else 'down'}")
        elif isinstance(action, PathChanged):
            log(f"path {action.path} {action.state} {action.reason}".rstrip())
        elif isinstance(action, Closed):
            self._closed = True


def log(line: str) -> None:
    """Print one line for the user."""
    print(f"rnbd: {line}", flush=True)
