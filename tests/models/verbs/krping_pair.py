"""krping on two devices of one process, with a thread for each command."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from bluebridge.guest.connections import open_connections
from bluebridge.guest.protocols.krping.host import Host, Result
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.protocols.krping.thread import KrpingThread
from bluebridge.guest.verbs import Device

SERVER_IP = "192.168.69.127"
CLIENT_IP = "192.168.69.128"
PATIENCE = 30.0


class Output(io.StringIO):
    """A log stream that counts the servers that began to listen."""

    listening = 0

    def write(self, text: str) -> int:
        self.listening += "rdma_listen" in text
        return super().write(text)


@dataclass
class Side:
    """One host with its log."""

    host: Host
    output: Output

    @property
    def text(self) -> str:
        return self.output.getvalue()


def side_on(device: Device, ip: str) -> Side:
    """A host on `device`, which it closes, at the address `ip`."""
    with ExitStack() as stack:
        stack.enter_context(device)
        manager = open_connections(device, ip, stack)
        output = Output()
        return Side(Host(device, manager, Log(output), stack.pop_all()), output)


@dataclass
class Run:
    """A command in a thread of its own."""

    thread: threading.Thread
    results: list[Result] = field(default_factory=list)
    running: list[KrpingThread] = field(default_factory=list)

    def result(self) -> Result:
        self.thread.join(PATIENCE)
        assert self.results, "the command did not end in time"
        return self.results[0]


def start(side: Side, command: str) -> Run:
    """Run a command beside the test; a server is listening when this returns."""
    before = side.output.listening
    run = Run(threading.Thread(daemon=True))

    def body() -> None:
        run.results.append(side.host.run(command, run.running.append))

    run.thread = threading.Thread(target=body, daemon=True)
    run.thread.start()
    if command.startswith("server"):
        until(lambda: side.output.listening > before or bool(run.results))
    return run


def both(pair: tuple[Side, Side], options: str, port: int = 9999) -> tuple[Run, Run]:
    """Start server and client with the same options."""
    address = f"addr={SERVER_IP},port={port}"
    server = start(pair[0], f"server,{address},{options}".rstrip(","))
    return server, start(pair[1], f"client,{address},{options}".rstrip(","))


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another thread brings about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
