"""The peer's side of an engine: its commands, and the sends of its queue pairs, are served."""

from __future__ import annotations

from collections import deque

from bluebridge.guest.protocols.ntrdma.engine.command_ring import CommandExecution
from bluebridge.guest.protocols.ntrdma.engine.remote import RemoteResources
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import RemotePair
from bluebridge.guest.protocols.ntrdma.engine.responder import Responder


class PeerSide:
    """The twins of the peer's resources in `remote`, and those of its queue pairs that rang."""

    def __init__(
        self, execution: CommandExecution, remote: RemoteResources, responder: Responder
    ) -> None:
        self.execution, self.remote, self._responder = execution, remote, responder
        self.rung: deque[RemotePair] = deque()
        self.broken = ""
        """The reason to disconnect from the peer, if there is one."""

    def execute(self) -> None:
        """Carry out the commands that came."""
        commands = self.execution.take()
        if commands is None:
            self.broken = "the peer's command index cannot be"
        elif commands:
            self.execution.answer([self.remote.execute(command) for command in commands])

    def rang(self, twin: RemotePair) -> None:
        """Note that the peer has sent to a twin."""
        if twin not in self.rung:
            self.rung.append(twin)

    def serve(self) -> bool:
        """Serve a batch of each twin that rang; returns True if more is left."""
        for _ in range(len(self.rung)):
            twin = self.rung.popleft()
            produced = twin.send_produced.get()
            self.execute()  # those that were stored before these sends
            if self.remote.pair(twin.key) is twin and self._responder.serve(twin, produced):
                self.rung.append(twin)
        return bool(self.rung)

    def clear(self) -> None:
        """Forget everything of a peer that begins anew."""
        self.remote.clear()
        self.rung.clear()
        self.execution.restart()
