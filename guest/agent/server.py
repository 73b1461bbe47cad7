"""The agent as a whole: its ports, and what the host may ask for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from bluebridge.guest.agent import PROTOCOL, VERSION, identity, pci, ports
from bluebridge.guest.agent.channel import Channel, OperationError
from bluebridge.guest.agent.command import Command
from bluebridge.guest.agent.files import Get, Put
from bluebridge.guest.agent.link import Link
from bluebridge.guest.agent.loop import Loop
from bluebridge.guest.agent.processes import spare_from_oom

_LOOK_SECONDS = 0.5
_POWEROFF_SECONDS = 0.2
_SPARED = -1000


class Answer(Channel):
    """An operation that is over as soon as it has begun."""

    def __init__(self, link: Link, number: int, result: dict[str, Any]) -> None:
        super().__init__(link, number)
        self._result = result

    def start(self) -> None:
        """Say it."""
        self.done(**self._result)


class Server:
    """Serves every port it is given, and in a guest every port that appears."""

    def __init__(self, root: str = "/") -> None:
        """`root` is where the files of `personalise` are; tests choose another than /."""
        self._root = root
        self._loop = Loop()
        self._links: list[Link] = []
        self._ports: set[str] = set()

    def serve(self, fd: int) -> None:
        """Serve a port that is open."""
        self._links.append(Link(fd, self._loop, self.operation))

    def look(self) -> None:
        """Open new ports, now and from time to time."""
        for name, node in sorted(ports.find().items()):
            if node not in self._ports and (fd := ports.open_port(name, node)) is not None:
                self._ports.add(node)
                self.serve(fd)
        self._loop.later(_LOOK_SECONDS, self.look)

    def run(self) -> None:
        """Serve until the end of the guest."""
        spare_from_oom(os.getpid(), _SPARED)
        while True:
            busy = [link for link in self._links if link.runnable()]
            self._loop.run_once(idle=not busy)
            for link in busy:
                link.turn()
            for link in self._links:
                link.flush()

    def operation(self, link: Link, number: int, request: dict[str, Any]) -> Channel:
        """The channel that does what `request` asks for. Raises `OperationError`."""
        kind = request.get("op")
        if kind == "run":
            return Command(link, number, request)
        if kind == "put":
            return Put(link, number, request)
        if kind == "get":
            return Get(link, number, request)
        if kind == "ping":
            return Answer(link, number, self._status())
        if kind == "personalise":
            return self._answer(link, number, lambda: identity.personalise(request, self._root))
        if kind == "functions":
            return self._answer(link, number, lambda: {"functions": pci.functions(self._root)})
        if kind == "bind":
            address, driver = str(request.get("address")), str(request.get("driver"))
            return self._answer(link, number, lambda: pci.bind(address, driver, self._root))
        if kind == "poweroff" and self._root == "/":  # with another root this is no guest
            self._loop.later(_POWEROFF_SECONDS, _power_off)  # after the answer
            return Answer(link, number, {})
        raise OperationError("request", f"the agent knows no operation {kind!r}")

    def _answer(self, link: Link, number: int, action: Callable[[], dict[str, Any]]) -> Channel:
        """A channel that says what `action` returns, or why it could not be done."""
        try:
            return Answer(link, number, action())
        except OSError as error:
            where = error.filename or "the kernel"
            raise OperationError("system", f"{where}: {error.strerror}") from error

    def _status(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "protocol": PROTOCOL,
            "python": sys.version.split()[0],
            "pid": os.getpid(),
            "hostname": os.uname().nodename,
            "uptime": time.clock_gettime(time.CLOCK_BOOTTIME),
            "clock": time.time(),
            "operations": sum(link.channels for link in self._links),
        }


def _power_off() -> None:
    os.sync()
    subprocess.Popen(["poweroff", "-f"], start_new_session=True)
