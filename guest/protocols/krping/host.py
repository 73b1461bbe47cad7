"""One device with its connection manager, and the krping threads that run on it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import FrameType

from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.cm import ConnectionManager
from bluebridge.guest.connections import open_connections
from bluebridge.guest.protocols.krping.option_string import OptionError, Options, parse
from bluebridge.guest.protocols.krping.progress import Cancelled, KrpingError, Log
from bluebridge.guest.protocols.krping.sides import Client, Server
from bluebridge.guest.protocols.krping.thread import KrpingThread
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import Device, VerbsError

VECTORS = 24
"""The number of interrupt vectors to ask for.

One is for asynchronous events, one each for queue pair 1, the Ethernet queue pair and every krping
thread that runs at the same time.
"""

_ECHOES = {
    "addr": "ipaddr ({})",
    "addr6": "ipv6addr ({})",
    "tos": "type of service, tos={}",
    "fr": "fast-reg test!",
    "validate": "validate data",
    "local_dma_lkey": "using local dma lkey",
    "read_inv": "using read-with-inv",
}
"""The lines that the module logs for options that it understood, others than the option itself."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one krping command: `stats` has the nine columns by name.

    `iterations` counts finished ones, `validated` those whose data was compared and right.
    `us_per_iteration` is None on a server, which does not begin iterations. A run that was
    `cancelled` is fine when it was endless or had made its `count` iterations by then.
    """

    ok: bool
    iterations: int
    validated: int
    us_per_iteration: dict[str, float] | None
    stats: dict[str, str | int]
    cancelled: bool = False
    error: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        optional = ("cancelled", "error")
        return {key: value for key, value in asdict(self).items() if value or key not in optional}

    @property
    def stats_line(self) -> str:
        """Return the nine columns as /proc/krping has them."""
        return " ".join(str(value) for value in self.stats.values())

    @property
    def summary(self) -> str:
        """Return a one-line summary for the user."""
        text = f"{self.iterations} iterations, {self.validated} validated"
        if self.us_per_iteration is not None:
            low, middle, high = self.us_per_iteration.values()
            text += f", min/median/p99 {low}/{middle}/{high} us per iteration"
        return text


class Host:
    """A device on which krping commands run, several at once; `close` closes `owned`."""

    def __init__(
        self, device: Device, manager: ConnectionManager, log: Log, owned: contextlib.ExitStack
    ) -> None:
        self.log = log
        self.device = device
        self._owned = owned
        self._manager = manager
        self._lock = threading.Lock()
        self._threads: list[KrpingThread] = []

    def run(self, command: str, started: Callable[[KrpingThread], None] | None = None) -> Result:
        """Run one command in the calling thread until it ends.

        `started` gets the thread's object, whose `cancel` ends the run from elsewhere. Never
        raises for what a user or a peer can do wrong: the result says it.
        """
        try:
            options = parse(command)
        except OptionError as error:
            self.log.note(str(error))
            return Result(False, 0, 0, None, {}, error=str(error))
        for name, operand in options.given:
            plain = name if operand is None else f"{name} {operand}"
            self.log.line(_ECHOES[name].format(operand) if name in _ECHOES else plain)
        thread = self._create(options)
        error_text = ""
        try:
            if started is not None:
                started(thread)
            thread.run()
        except Cancelled:
            self.log.note("interrupted")
        except KrpingError as error:
            error_text = str(error)
        except (OSError, VerbsError, MemoryError) as error:
            error_text = _reason(error)
        finally:
            result = self._finish(thread, error_text)
        if result.error:
            self.log.note(f"failed: {result.error}")
        return result

    def statistics(self) -> str:
        """Return the text of /proc/krping: a line for each running thread."""
        with self._lock:
            threads = list(self._threads)
        return "".join(
            thread.stats.line(thread.name) + "\n"
            if thread.resources is not None
            else f"{thread.number} listen\n"
            for thread in threads
        )

    def close(self) -> None:
        """Close the device; no command may be running."""
        self._owned.close()

    def _create(self, options: Options) -> KrpingThread:
        kind = Server if options.server else Client
        thread = kind(self.device, self._manager, options, self.log)
        with self._lock:
            taken = {other.number for other in self._threads}
            thread.number = next(n for n in range(1, len(taken) + 2) if n not in taken)
            self._threads.append(thread)
            self._threads.sort(key=lambda other: other.number)
        return thread

    def _finish(self, thread: KrpingThread, error: str) -> Result:
        stats = thread.stats.by_name(thread.name)
        with self._lock:
            self._threads.remove(thread)
        try:
            thread.close()
        except (OSError, VerbsError) as problem:
            # A device that is gone cannot be tidied up; why the run failed is known by then.
            error = error or _reason(problem)
        options = thread.options
        if not error and not thread.complete:
            error = f"interrupted after {thread.iterations} of {options.count} iterations"
        return Result(
            ok=not error,
            iterations=thread.iterations,
            validated=thread.validated,
            us_per_iteration=None if options.server else thread.latencies.summary(),
            stats=stats,
            cancelled=thread.cancelled,
            error=error,
        )


def open_hca(bus: Bus, blueflame: str = "off") -> Device:
    """Open the HCA behind `bus` with interrupts for krping; raises `DeviceError`."""
    return open_device(bus, vectors=VECTORS, blueflame=blueflame)


def host_of(opened: Device, ip: str, log: Log, port: int = 1) -> Host:
    """Make a host, which closes the device, on a port of an open device with the IP address `ip`.

    Raises `DeviceError`.
    """
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(opened).port(port)
        manager = open_connections(device, ip, stack)
        return Host(device, manager, log, stack.pop_all())


def on_signals(call: Callable[[], None]) -> None:
    """Call `call` at SIGINT and SIGTERM from now on."""

    def called(_number: int, _frame: FrameType | None) -> None:
        call()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, called)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
