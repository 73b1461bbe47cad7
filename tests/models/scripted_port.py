"""A virtio-serial port by script: both ends are the real ones, what lies between is the test's.

Bytes move when and in what portions the test says, and what Linux knows of the host (connected or
not) follows the control messages that the test delivers, however late.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bluebridge.guest.agent.__main__ import Server
from bluebridge.guest.agent.loop import Handler, Loop
from bluebridge.guest.agent.served_port import ServedPort
from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.agent.connection import AgentConnection

_PATIENCE = 20.0


class ScriptedLoop(Loop):
    """The guest's loop, with a clock and a "hung up" of the test's own."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = True
        """port->host_connected of virtio_console.c."""
        self.time = 0.0
        self.edge: Handler = lambda events: None

    def add(self, fd: int, events: int, handler: Handler) -> None:
        """As `Loop.add`; a descriptor with both directions is the port."""
        if events & select.EPOLLIN and events & select.EPOLLOUT:
            self.edge = lambda found: handler(found | (0 if self.connected else select.EPOLLHUP))
            return super().add(fd, events, self.edge)
        return super().add(fd, events, handler)

    def hung_up(self, fd: int) -> bool:
        """As port_fops_poll has it."""
        return not self.connected

    def now(self) -> float:
        """Time passes when the test says so."""
        return self.time


class ScriptedPort:
    """The `served` port of an agent, a `connection` of a host, and what the test lets through."""

    def __init__(self, root: Path) -> None:
        self.loop = ScriptedLoop()
        self.control: list[bool] = []
        """PORT_OPEN messages that Linux has not handled yet."""
        self._driver, self._guest = socket.socketpair()
        self._qemu, self._client = socket.socketpair()
        for end in (self._driver, self._qemu):
            end.setblocking(False)
        self.swallow = b""
        """Bytes that are never to arrive: the portion with them gets lost, once."""
        self.served = ServedPort(self._guest.fileno(), self.loop, Server(str(root)).operation)
        self.connection = AgentConnection("a", self._client)

    def up(self, most: int = 1 << 20, wait: bool = True) -> None:
        """Bytes from the host into the port; the first ones are waited for if `wait`."""
        if wait:
            assert select.select([self._qemu], [], [], _PATIENCE)[0], "the host sends nothing"
        with contextlib.suppress(BlockingIOError):
            data = self._qemu.recv(most)
            if self.swallow and self.swallow in data:
                self.swallow = b""
            else:
                self.put(data)

    def put(self, data: bytes) -> None:
        """Bytes into the port as if a host had sent them."""
        self._driver.send(data)

    def guest(self) -> None:
        """One turn of the agent."""
        self.loop.run_once(idle=False)
        if self.served.runnable():
            self.served.turn()
        self.served.flush()

    def down(self, most: int = 1 << 20) -> None:
        """Bytes from the port to the host."""
        with contextlib.suppress(BlockingIOError):
            self._qemu.send(self._driver.recv(most))

    def drop(self) -> bytes:
        """Bytes from the port to a host that is not there any more."""
        try:
            return self._driver.recv(1 << 20)
        except BlockingIOError:
            return b""

    def idle(self) -> None:
        """Give the host a moment to send something."""
        select.select([self._qemu], [], [], 0.01)

    def told(self) -> None:
        """Linux handles the next control message, if there is one, and wakes the agent."""
        if self.control:
            self.loop.connected = self.control.pop(0)
            self.loop.edge(select.EPOLLIN)

    def later(self, seconds: float) -> None:
        """Time passes in the guest, enough of it for all control messages."""
        while self.control:
            self.told()
        self.loop.time += seconds
        self.guest()

    def everything(self, done: Callable[[], bool]) -> None:
        """Let everything through until `done`."""
        deadline = time.monotonic() + _PATIENCE
        while not done():
            assert time.monotonic() < deadline, "waited for in vain"
            self.up(wait=False)
            self.later(0)
            self.down()
            select.select([self._qemu, self._driver], [], [], 0.005)

    def close(self) -> None:
        """Hang up at both ends."""
        self.connection.close()
        for end in (self._driver, self._guest, self._qemu, self._client):
            end.close()


class Host:
    """A thread that connects and has the agent do one thing."""

    def __init__(self, port: ScriptedPort, work: Callable[[Agent], Any]) -> None:
        self._port = port
        self._work = work
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._port.connection.synchronise(_PATIENCE)
            self.result = self._work(Agent(self._port.connection))
        except Exception as error:
            self.result = error

    def end(self) -> Any:
        """Return what came of it, once everything is let through; raised if it is an exception."""
        self._port.everything(lambda: not self._thread.is_alive())
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@contextlib.contextmanager
def scripted_port(root: Path) -> Iterator[ScriptedPort]:
    """A port for the length of a `with` block."""
    port = ScriptedPort(root)
    try:
        yield port
    finally:
        port.close()


def session() -> bytes:
    """Return what another host might have called its session."""
    return os.urandom(8)
