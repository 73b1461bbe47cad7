"""The site of `bluebridge web` as tests use it: a served log, and a control socket that answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import bottle

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.web.app import Site, serve
from bluebridge.host_tools.web.book import Book
from bluebridge.host_tools.web.lab import Lab, Live
from tests.models.analysis_log import Sender
from tests.unit.web.browser import Browser

SECRET = "the-secret"
POSTS = 200
"""Rounds of three posts in a log: 67 events."""
TURN_SECONDS = 0.01
"""The seconds in which a server sees that it has to end; the library's own are half a one."""


def written(folder: Path, rounds: int = POSTS) -> Sender:
    """A log in `folder` that goes on: posts by doorbell, BlueFlame and fallback."""
    sender = Sender(folder)
    for _ in range(rounds):
        sender.post(8)
        sender.post(150, by="blueflame", inline=True)
        sender.post(100, by="fallback", announced=True)
    sender.log.flush()
    return sender


class Control:
    """Answers as the device server of two HCAs does; `lines` are what it was told."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self.out = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client:
                    line = client.recv(4096).decode().strip()
                    client.sendall(self._answer(line).encode())

    def _answer(self, line: str) -> str:
        if line == "status":
            cable = "out" if self.out else "in"
            return f"a/1 working cable {cable} link up\nb/1 working cable in link up\nok\n"
        self.lines.append(line)
        self.out = line == "link a/1 down"
        return "ok\n"

    def close(self) -> None:
        """Answer no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def served(
    folder: Path, control: Path | None = None, title: str = "log of a test"
) -> Iterator[str]:
    """The site of a log; its address with the secret."""
    lab = Lab(LogReader(folder), title, control)
    with serving(Site(lab, Book(folder), Live(lab)).application()) as address:
        yield address


@contextlib.contextmanager
def shown(chromium: Browser, folder: Path, control: Path | None = None) -> Iterator[None]:
    """The page of a log in a browser."""
    with served(folder, control) as address:
        chromium.open(address)
        yield
        chromium.open("about:blank")


@contextlib.contextmanager
def serving(site: bottle.Bottle) -> Iterator[str]:
    """A site that is served; its address with the secret."""
    server = serve(site, SECRET, 0)
    thread = threading.Thread(target=server.serve_forever, args=(TURN_SECONDS,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{SECRET}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
