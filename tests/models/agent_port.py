"""The real agent in a subprocess behind a stand-in for QEMU's end of the virtio-serial port."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from bluebridge.host_tools.agent import Agent

ROOT = Path(__file__).resolve().parent.parent.parent


class AgentPort:
    """A listening socket, one client at a time, joined to a port that never closes.

    The agent hears nothing of clients that come and go, as after a restored snapshot; bytes that a
    client did not read, or wrote in part, stay in the stream.
    """

    def __init__(self, folder: Path) -> None:
        """Start the agent with its `root` in `folder`."""
        self.path = folder / "agent.sock"
        self.root = folder / "root"
        for name in ("etc", "proc/sys/kernel"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._port, far = socket.socketpair()
        self._errors = (folder / "agent.log").open("w+b")
        self._process = self._spawn(far)
        self._far = far
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _spawn(self, far: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-m",
                "bluebridge.guest.agent",
                f"fd={far.fileno()}",
                f"root={self.root}",
            ],
            pass_fds=[far.fileno()],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
        )

    def connect(self, timeout: float = 20) -> Agent:
        """A client of the agent."""
        return Agent.connect("a", [self.path], timeout)

    def raw(self) -> socket.socket:
        """A client that may misbehave."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.path))
        connection.settimeout(20)
        return connection

    @property
    def pid(self) -> int:
        """The agent's process."""
        return self._process.pid

    def resident(self) -> int:
        """The agent's resident memory in bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def children(self) -> list[int]:
        """Processes of the agent that live."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def complaints(self) -> str:
        """Return what the agent printed: nothing, unless it has a mistake."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def restart_agent(self) -> None:
        """Kill the agent and start another on the same port."""
        self._process.kill()
        self._process.wait()
        self._process = self._spawn(self._far)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            gone = threading.Event()
            up = threading.Thread(target=self._pump, args=(client, self._port, gone))
            up.start()
            self._pump(self._port, client, gone)
            up.join()
            client.close()

    def _pump(self, source: socket.socket, sink: socket.socket, gone: threading.Event) -> None:
        while not gone.is_set() and not self._stop.is_set():
            if not select.select([source], [], [], 0.02)[0]:
                continue
            with contextlib.suppress(OSError):
                data = source.recv(4096)  # what the guest's driver hands out at once
                if data:
                    self._deliver(data, sink, gone)
                    continue
            gone.set()

    def _deliver(self, data: bytes, sink: socket.socket, gone: threading.Event) -> None:
        while data and not gone.is_set() and not self._stop.is_set():
            if select.select([], [sink], [], 0.02)[1]:
                data = data[sink.send(data) :]

    def close(self) -> None:
        """End the agent and the stand-in."""
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self._process.kill()
        self._process.wait()
        self._port.close()
        self._far.close()
        self._errors.close()


@contextlib.contextmanager
def agent_port(folder: Path) -> Iterator[AgentPort]:
    """An agent for the length of a `with` block; it must not have complained."""
    port = AgentPort(folder)
    try:
        yield port
        complaints = port.complaints()
    finally:
        port.close()
    assert not complaints
