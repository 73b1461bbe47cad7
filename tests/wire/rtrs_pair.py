"""RTRS between two HCAs of the device server, without guests: both sides in one loop."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bluebridge.guest.providers import open_device
from bluebridge.guest.rtrs.engine.actions import (
    Action,
    AddressPair,
    Closed,
    Direction,
    Finished,
    Opened,
    Serve,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.rtrs.engine.client.session import ClientSession
from bluebridge.guest.rtrs.engine.server.server import Server
from bluebridge.guest.rtrs.engine.settings import ClientSettings, ServerSettings
from bluebridge.guest.rtrs.transport.interfaces import (
    Interfaces,
    InterfaceWords,
    open_interface,
)
from bluebridge.guest.rtrs.transport.loop import Loop
from bluebridge.guest.rtrs.transport.sides import ClientSide, ServerSide
from bluebridge.host_tools.vfio_user.bus import WireBus

SERVER_IP, CLIENT_IP = "10.9.0.1", "10.9.0.2"
PORT = 1234
SECONDS = 30.0


class Store:
    """The layer above a server: a disk of sectors that the user message addresses."""

    def __init__(self) -> None:
        self.side: ServerSide | None = None
        self.disk = bytearray(1 << 20)
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
            self._serve(action)

    def _serve(self, action: Serve) -> None:
        assert self.side is not None
        view = self.side.chunks.view(action.session, action.chunk)
        start = int.from_bytes(action.user[:8], "little")
        errno = 0
        if start + action.length > len(self.disk):
            errno = 5
        elif action.direction is Direction.WRITE:
            self.disk[start : start + action.length] = view[: action.length]
        else:
            view[: action.length] = self.disk[start : start + action.length]
        side, operation = self.side, action.operation
        side.engine.respond(operation, errno, 0.0)


class User:
    """The layer above a client: one request at a time."""

    def __init__(self) -> None:
        self.side: ClientSide | None = None
        self.opened: list[int] = []
        self.finished: dict[int, int] = {}
        self.closed = False

    def __call__(self, action: Action) -> None:
        """An action of the engine that is not the transport's."""
        if isinstance(action, Opened):
            self.opened.append(action.errno)
        elif isinstance(action, Finished):
            self.finished[action.slot] = action.errno
        elif isinstance(action, Closed):
            self.closed = True


class RtrsPair:
    """A server and a client's session."""

    def __init__(
        self, loop: Loop, server: ServerSide, store: Store, client: ClientSide, user: User
    ):
        self.loop, self.server, self.store = loop, server, store
        self.client, self.user = client, user

    def open(self, paths: Sequence[AddressPair]) -> int:
        """Connect; the errno."""
        transport = self.client.transport
        transport.call(lambda now: self.client.engine.open(paths, now))
        assert self.loop.run_until(lambda: bool(self.user.opened), SECONDS)
        return self.user.opened.pop()

    def write(self, start: int, data: bytes) -> int:
        """Store bytes at `start` of the disk; the errno."""
        permit = self.client.engine.get_permit()
        assert permit is not None
        self.client.slots.data(permit.slot)[: len(data)] = data
        errno = self._request(Direction.WRITE, permit.slot, start, len(data))
        self.client.engine.put_permit(permit)
        return errno

    def read(self, start: int, length: int) -> tuple[int, bytes]:
        """The errno and what is at `start` of the disk."""
        permit = self.client.engine.get_permit()
        assert permit is not None
        self.client.slots.data(permit.slot)[:length] = b"\xee" * length
        errno = self._request(Direction.READ, permit.slot, start, length)
        data = bytes(self.client.slots.data(permit.slot)[:length])
        self.client.engine.put_permit(permit)
        return errno, data

    def _request(self, direction: Direction, slot: int, start: int, length: int) -> int:
        from bluebridge.guest.rtrs.engine.interface import Permit

        result: list[int] = []
        message = start.to_bytes(8, "little")
        permit = Permit(slot, 0, False)
        self.client.transport.call(
            lambda now: result.append(
                self.client.engine.request(direction, permit, message, length, now)
            )
        )
        if result[0]:
            return result[0]
        assert self.loop.run_until(lambda: slot in self.user.finished, SECONDS)
        return self.user.finished.pop(slot)

    def close(self) -> None:
        """End the session and the server."""
        self.client.transport.call(self.client.engine.close)
        assert self.loop.run_until(lambda: self.user.closed, SECONDS)
        self.server.transport.call(self.server.engine.close)
        assert self.loop.run_until(lambda: self.store.closed, SECONDS)


@contextmanager
def rtrs_pair(
    sockets: tuple[Path, Path],
    client_settings: ClientSettings,
    server_settings: ServerSettings,
) -> Iterator[RtrsPair]:
    """The server on the first HCA, the client on the second; not connected yet."""
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        store, user = Store(), User()
        server_on = _interfaces(stack, sockets[0], SERVER_IP)
        client_on = _interfaces(stack, sockets[1], CLIENT_IP)
        server = ServerSide(
            server_on, loop, lambda memory: Server(memory, server_settings), store, PORT
        )
        store.side = server
        stack.callback(server.close)
        client = ClientSide(
            client_on,
            loop,
            lambda memory: ClientSession("clt", memory, random.Random(1), client_settings),
            user,
        )
        user.side = client
        stack.callback(client.close)
        yield RtrsPair(loop, server, store, client, user)


def _interfaces(stack: ExitStack, socket: Path, ip: str) -> Interfaces:
    bus = WireBus(socket)
    stack.callback(bus.close)
    device = stack.enter_context(open_device(bus, vectors=16))
    words = InterfaceWords("", 1, ip, 24)
    return Interfaces([open_interface(stack, device, "mlx4_0", words)])
