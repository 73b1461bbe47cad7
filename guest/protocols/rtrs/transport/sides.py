"""A client's session and a server, each with its memory and its transport."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from bluebridge.guest.protocols.cm import CmEvent
from bluebridge.guest.protocols.rtrs.engine.actions import ClientMemory, ServerMemory
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.server.server import Server
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.memory import Chunks, Slots
from bluebridge.guest.protocols.rtrs.transport.requests import WorkRequests
from bluebridge.guest.protocols.rtrs.transport.transport import Transport, Upper


class ClientSide:
    """A client's session with its transport.

    `make_engine` gets its memory. The data of requests is in `slots`.
    """

    def __init__(
        self,
        interfaces: Interfaces,
        loop: Loop,
        make_engine: Callable[[ClientMemory], ClientSession],
        upper: Upper,
    ) -> None:
        self.slots = Slots(interfaces)
        self.engine = make_engine(self.slots)
        self.transport = Transport(
            self.engine, interfaces, loop, WorkRequests(self.slots, None), upper
        )
        self.slots.interface_of = self.transport.interface_of

    def close(self) -> None:
        """Free everything; the session should be closed before."""
        self.transport.close()
        self.slots.free_slots()


class ServerSide:
    """A server that listens on every address; the data of requests is in `chunks`."""

    def __init__(
        self,
        interfaces: Interfaces,
        loop: Loop,
        make_engine: Callable[[ServerMemory], Server],
        upper: Upper,
        port: int,
    ) -> None:
        self.chunks = Chunks(interfaces)
        self.engine = make_engine(self.chunks)
        self.transport = Transport(
            self.engine, interfaces, loop, WorkRequests(None, self.chunks), upper
        )
        self.chunks.interface_of = self.transport.interface_of
        self._loop = loop
        self._numbers = itertools.count(1)
        self.transport.listen(port, self._requested)

    def close(self) -> None:
        """Free everything; the sessions should be closed before."""
        self.transport.close()
        for session in self.engine.sessions:
            self.chunks.free_chunks(session.session)

    def _requested(self, event: CmEvent) -> None:
        number = next(self._numbers)
        addresses = self.transport.adopt(event, number)
        self.engine.requested(number, event.private_data, addresses, self._loop.now())
