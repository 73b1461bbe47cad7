"""Tests of RTRS on every provider of verbs: it knows none of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    AddressPair,
    Closed,
    Finished,
    LinkChanged,
    Opened,
    Serve,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings, Timing
from bluebridge.guest.protocols.rtrs.traffic import Store, Totals, Traffic
from bluebridge.guest.protocols.rtrs.transport.interfaces import (
    Interfaces,
    InterfaceWords,
    open_interface,
)
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.transport import ClientSide, ServerSide
from bluebridge.guest.verbs import Device

PORT = 1234
SECONDS = 60.0


class ServerUser:
    """The layer above a server: memory, and what the engine told."""

    def __init__(self) -> None:
        self.side: ServerSide | None = None
        self.store = Store(1 << 20)
        self.sessions: list[str] = []
        self.ended = 0
        self.closed = False

    def __call__(self, action: Action) -> None:
        """An action of the engine that is not the transport's."""
        if isinstance(action, SessionUp):
            self.sessions.append(action.name)
        elif isinstance(action, SessionDown):
            self.ended += 1
        elif isinstance(action, Closed):
            self.closed = True
        elif isinstance(action, Serve):
            assert self.side is not None
            errno = self.store.serve(action, self.side.chunks.view)
            self.side.engine.respond(action.operation, errno, Loop.now())


class ClientUser:
    """The layer above a client: verified traffic, and what the engine told."""

    def __init__(self) -> None:
        self.traffic: Traffic | None = None
        self.opened: list[int] = []
        self.links: list[bool] = []
        self.closed = False

    def __call__(self, action: Action) -> None:
        """An action of the engine that is not the transport's."""
        if isinstance(action, Opened):
            self.opened.append(action.errno)
        elif isinstance(action, Finished):
            assert self.traffic is not None
            self.traffic.finished(action.slot, action.errno)
        elif isinstance(action, LinkChanged):
            self.links.append(action.up)
        elif isinstance(action, Closed):
            self.closed = True


class RtrsClient:
    """A client's session."""

    def __init__(self, loop: Loop, client: ClientSide) -> None:
        self.loop, self.client = loop, client

    @property
    def client_user(self) -> ClientUser:
        user = self.client.transport.upper
        assert isinstance(user, ClientUser)
        return user

    def open(self, paths: Sequence[AddressPair]) -> int:
        """Connect; the errno."""
        user, engine = self.client_user, self.client.engine
        self.client.transport.call(lambda now: engine.open(paths, now))
        assert self.loop.run_until(lambda: bool(user.opened), SECONDS)
        return user.opened.pop()

    def start_traffic(self, count: int, length: int, depth: int) -> Traffic:
        """Begin to write `count` blocks, each read back and compared."""
        traffic = Traffic(self.client, count, length, depth, lambda: None)
        self.client_user.traffic = traffic
        self.client.transport.call(traffic.start)
        return traffic

    def finish(self, traffic: Traffic, seconds: float = SECONDS) -> Totals:
        """Serve until the traffic is over."""
        assert self.loop.run_until(lambda: bool(traffic.totals.seconds), seconds)
        return traffic.totals

    def states(self) -> list[str]:
        return [path.state for path in self.client.engine.paths]

    def close_client(self) -> None:
        self.client.transport.call(self.client.engine.close)
        assert self.loop.run_until(lambda: self.client_user.closed, SECONDS)


class RtrsPair(RtrsClient):
    """A server and a client's session."""

    def __init__(self, loop: Loop, server: ServerSide, client: ClientSide) -> None:
        super().__init__(loop, client)
        self.server = server

    @property
    def server_user(self) -> ServerUser:
        user = self.server.transport.upper
        assert isinstance(user, ServerUser)
        return user

    def close(self) -> None:
        self.close_client()
        self.server.transport.call(self.server.engine.close)
        assert self.loop.run_until(lambda: self.server_user.closed, SECONDS)


@contextmanager
def rtrs_pair(
    server_on: Interfaces,
    client_on: Interfaces,
    client_settings: ClientSettings,
    server_settings: ServerSettings,
) -> Iterator[RtrsPair]:
    """Both sides, not connected yet."""
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        user = ServerUser()
        server = ServerSide(server_on, loop, user, server_settings, PORT)
        user.side = server
        stack.callback(server.close)
        yield RtrsPair(loop, server, _client(stack, loop, client_on, client_settings))


@contextmanager
def rtrs_client(on: Interfaces, settings: ClientSettings) -> Iterator[RtrsClient]:
    """A client whose server is in another process."""
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        yield RtrsClient(loop, _client(stack, loop, on, settings))


def _client(stack: ExitStack, loop: Loop, on: Interfaces, settings: ClientSettings) -> ClientSide:
    client = ClientSide(on, loop, ClientUser(), "clt", random.Random(1), settings)
    stack.callback(client.close)
    return client


def interfaces_on(stack: ExitStack, devices: dict[str, Device]) -> Interfaces:
    """One for each address, on port 1 of its device; `stack` closes them."""
    return Interfaces(
        [
            open_interface(stack, device, device.name, InterfaceWords(device.name, 1, address, 24))
            for address, device in devices.items()
        ]
    )


SERVER, CLIENT = "10.9.0.1", "10.9.0.2"
PATH = AddressPair(CLIENT, SERVER)
TIMING = Timing(backoff=0.05, jitter=0.001)
SMALL = ServerSettings(queue_depth=16, max_chunk_size=1 << 15, timing=TIMING)
LIKELY = ClientSettings(cpus=2, reconnect_delay=0.1, timing=TIMING)


class RtrsContract:
    """Tests of a server's interfaces and a client's; a class derives from it and has `ends`."""

    @pytest.mark.parametrize("always_invalidate", [True, False])
    @pytest.mark.parametrize("need_inval", [True, False])
    def test_blocks_come_back_as_they_were_written(
        self, ends: tuple[Interfaces, Interfaces], *, always_invalidate: bool, need_inval: bool
    ) -> None:
        """With each way of ending keys, on the server and on the client."""
        client = replace(LIKELY, need_inval=need_inval)
        server = replace(SMALL, always_invalidate=always_invalidate)
        with rtrs_pair(*ends, client, server) as pair:
            assert pair.open([PATH]) == 0
            assert pair.server_user.sessions == ["clt"]
            for length, count in ((4096, 100), (28 << 10, 20)):
                totals = pair.finish(pair.start_traffic(count, length, depth=8))
                assert (totals.errors, totals.mismatches, totals.requests) == (0, 0, 2 * count)
            pair.close()
            assert pair.server_user.ended == 1
