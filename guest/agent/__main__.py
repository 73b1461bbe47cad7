"""`python3 -m bluebridge.guest.agent [fd=NUMBER]... [root=FOLDER]`.

Serves the virtio-serial ports of its name, or the given file descriptors instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from bluebridge.guest.agent import PORT, PROTOCOL, VERSION, machine
from bluebridge.guest.agent.files import Get, Put
from bluebridge.guest.agent.loop import READ, Loop
from bluebridge.guest.agent.run import Run, spare_from_oom
from bluebridge.guest.agent.served_port import Operation, OperationError, ServedPort

MESSAGES = "dev/kmsg"
SERIAL = "dev/ttyS1"
WORST = 1
"""The level up to which the kernel itself writes to the console.

images/guest/init sets it by `dmesg -n 2`.
"""
ERROR = 3
LONGEST_RECORD = 8192
LEVEL_MASK = 7
BURST = 64
"""The most records that are read before other work of the agent gets its turn."""

_CLASS = "/sys/class/virtio-ports"
_NAMES = "/dev/virtio-ports"

_LOOK_SECONDS = 0.5
_POWEROFF_SECONDS = 0.2
_SPARED = -1000


def error_line(record: bytes) -> bytes | None:
    """Return the line for a record of /dev/kmsg if it is an error, else None.

    A record is `PRIORITY,NUMBER,MICROSECONDS,FLAGS[,...];TEXT` and lines of properties, which begin
    with a space (Linux Documentation/ABI/testing/dev-kmsg).
    """
    head, separator, text = record.partition(b";")
    words = head.split(b",")
    if not separator or len(words) < 3 or not (words[0].isdigit() and words[2].isdigit()):
        return None
    if not WORST < int(words[0]) & LEVEL_MASK <= ERROR:
        return None
    seconds, micros = divmod(int(words[2]), 1000000)
    return b"[%5d.%06d] %b\n" % (seconds, micros, text.partition(b"\n")[0])


class KernelErrors:
    """Copies errors of the kernel's log to a serial line, also those from before its start."""

    def __init__(self, loop: Loop, root: str = "/") -> None:
        """Open log and second serial line; raises `OSError` where either is missing."""
        self._source = os.open(os.path.join(root, MESSAGES), os.O_RDONLY | os.O_NONBLOCK)
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            self._line = os.open(os.path.join(root, SERIAL), flags)
        except OSError:
            os.close(self._source)
            raise
        loop.add(self._source, READ, self._ready)

    def _ready(self, events: int) -> None:
        """Copy new records; what the line does not take at once is lost, since none may wait."""
        for _ in range(BURST):
            try:
                record = os.read(self._source, LONGEST_RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            if (line := error_line(record)) is not None:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._line, line)


def find_ports() -> dict[str, str]:
    """Return the device nodes of the agent's ports by port name, without udev's links."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for node in os.listdir(_CLASS):
            with contextlib.suppress(OSError), open(f"{_CLASS}/{node}/name") as stream:
                name = stream.read().strip()
                if name == PORT or name.startswith(PORT + "."):
                    found[name] = f"/dev/{node}"
    return found


def open_port(name: str, node: str) -> int | None:
    """Open a port in both directions and link it as usual; None if it is not ready."""
    try:
        fd = os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # still being made, or another agent has it
        return None
    with contextlib.suppress(OSError):
        os.makedirs(_NAMES, exist_ok=True)
        os.symlink(node, f"{_NAMES}/{name}")
    return fd


class Answer(Operation):
    """An operation that is over as soon as it has begun."""

    def __init__(self, port: ServedPort, number: int, result: dict[str, Any]) -> None:
        super().__init__(port, number)
        self._result = result

    def start(self) -> None:
        """Send the answer to the request."""
        self.done(**self._result)


class Server:
    """The agent's server of every port it is given, and in a guest of every port that appears."""

    def __init__(self, root: str = "/") -> None:
        """`root` is where the files of `personalise` are; tests choose another than /."""
        self._root = root
        self._loop = Loop()
        self._serving: list[ServedPort] = []
        self._known_nodes: set[str] = set()
        with contextlib.suppress(OSError):  # a machine without a second serial line
            self._errors = KernelErrors(self._loop, root)

    def serve(self, fd: int) -> None:
        """Serve a port that is open, until it closes."""
        self._serving.append(ServedPort(fd, self._loop, self.operation))

    def look(self) -> None:
        """Open new ports, and plan to do so again."""
        for name, node in sorted(find_ports().items()):
            if node not in self._known_nodes and (fd := open_port(name, node)) is not None:
                self._known_nodes.add(node)
                self.serve(fd)
        self._loop.later(_LOOK_SECONDS, self.look)

    def run(self) -> None:
        """Serve until the end of the guest."""
        spare_from_oom(os.getpid(), _SPARED)
        while True:
            busy = [port for port in self._serving if port.runnable()]
            self._loop.run_once(idle=not busy)
            for port in busy:
                port.turn()
            for port in self._serving:
                port.flush()

    def operation(self, port: ServedPort, number: int, request: dict[str, Any]) -> Operation:
        """Return the operation that `request` asks for; raises `OperationError`."""
        kind = request.get("op")
        if kind == "run":
            if not request.get("tty"):
                return Run(port, number, request)
            from bluebridge.guest.agent.terminal_run import TerminalRun  # seldom needed

            return TerminalRun(port, number, request)
        if kind == "put":
            return Put(port, number, request)
        if kind == "get":
            return Get(port, number, request)
        if kind == "ping":
            return Answer(port, number, self._status())
        if kind == "personalise":
            return self._answer(port, number, lambda: machine.personalise(request, self._root))
        if kind == "functions":
            return self._answer(port, number, lambda: {"functions": machine.functions(self._root)})
        if kind == "bind":
            address, driver = str(request.get("address")), str(request.get("driver"))
            return self._answer(port, number, lambda: machine.bind(address, driver, self._root))
        if kind == "poweroff" and self._root == "/":  # with another root this is no guest
            self._loop.later(_POWEROFF_SECONDS, _power_off)  # after the answer
            return Answer(port, number, {})
        raise OperationError("request", f"the agent knows no operation {kind!r}")

    def _answer(
        self, port: ServedPort, number: int, action: Callable[[], dict[str, Any]]
    ) -> Operation:
        """Return an operation that answers the result of `action`, or fails for its reason."""
        try:
            return Answer(port, number, action())
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
            "operations": sum(port.operations for port in self._serving),
        }


def _power_off() -> None:
    os.sync()
    subprocess.Popen(["poweroff", "-f"], start_new_session=True)


def main(words: list[str]) -> None:
    """Run until killed. `words` are the command line; a parser would cost start-up time."""
    options = [word.partition("=")[::2] for word in words]
    unknown = [name for name, _ in options if name not in ("fd", "root")]
    if unknown:
        sys.exit(f"bluebridge.guest.agent: unknown option {unknown[0]!r}\n{__doc__}")
    for number in (signal.SIGINT, signal.SIGQUIT):
        # /bin/sh has background jobs ignore them, and what we start would inherit that.
        signal.signal(number, signal.SIG_DFL)
    server = Server(next((value for name, value in options if name == "root"), "/"))
    descriptors = [int(value) for name, value in options if name == "fd"]
    for fd in descriptors:
        server.serve(fd)
    if not descriptors:
        server.look()
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
