"""The pair: one device server, two guests with an HCA each, and nothing left of them afterwards."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType

from host_tools import rundir, vm
from host_tools.errors import LabError
from host_tools.parts import Parts, ensure_parts
from host_tools.progress import Progress, Reporter
from host_tools.server import DeviceServer, ServerConfig
from host_tools.vm import Vm, VmConfig

NAMES = ("a", "b")


@dataclass(frozen=True)
class LabConfig:
    """What differs from one lab to the next."""

    log: Path | None = None
    """Folder for bus log and transcripts; None makes a new one that is kept for a while."""
    sockets: Path | None = None
    """Folder for the HCAs' sockets; None puts them into the private run folder."""
    bus_log: bool = True
    cpus: int = 2
    memory_mib: int = 1024
    hugepages: int = 64
    vfio: bool = True
    server_arguments: tuple[str, ...] = ()


class Pair:
    """Context manager: two booted guests, `pair.a` and `pair.b`, with an HCA each."""

    def __init__(self, config: LabConfig | None = None, progress: Progress | None = None) -> None:
        """Nothing starts before `with`."""
        self._config = config or LabConfig()
        self._progress = progress or Reporter(quiet=True)
        self._stack = contextlib.ExitStack()
        self._failure: Exception | None = None
        self._trouble: LabError | None = None
        self.log_name = ""
        """Folder of bus log and transcripts as text; empty while there is none."""

    def __enter__(self) -> Pair:
        """Start everything; on failure everything already started is ended again."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(termination_as_exception())
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End guests, then the server, then remove the run folder."""
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        parts = ensure_parts(self._progress)
        self.library = parts.library
        self.accelerator = parts.emulator.accelerator
        self.logs = rundir.log_folder(self._config.log)
        self.log_name = str(self.logs)
        self.folder = stack.enter_context(rundir.run_folder())
        self.server = DeviceServer(self._server_config(parts), self.logs)
        stack.callback(self.server.stop)
        self.server.start()
        self._progress("device server ready, booting two guests")
        initrd = parts.initrd_with_overlay(self.folder)
        self.machines = [self._machine(name, parts, initrd) for name in NAMES]
        for machine in self.machines:
            stack.callback(machine.stop)
        vm.boot(self.machines)
        for machine in self.machines:
            machine.console.alarms += [self.server.trouble, lambda: self._trouble]
        self.both(lambda machine: machine.console.wait_for_prompt())
        self._progress(f"guests a and b are up ({parts.emulator.accelerator})")

    def _server_config(self, parts: Parts) -> ServerConfig:
        self.hca_sockets = {
            name: (self._config.sockets or self.folder) / f"hca-{name}.sock" for name in NAMES
        }
        log = self.logs / "bus" if self._config.bus_log else None
        return ServerConfig(self.hca_sockets, log, parts.library, self._config.server_arguments)

    def _machine(self, name: str, parts: Parts, initrd: Path) -> Vm:
        base = VmConfig(name, parts.kernel, initrd, (self.hca_sockets[name],))
        config = replace(
            base,
            cpus=self._config.cpus,
            memory_mib=self._config.memory_mib,
            hugepages=self._config.hugepages,
            vfio=self._config.vfio,
        )
        return Vm(config, parts.emulator, self.folder, self.logs)

    @property
    def a(self) -> Vm:
        """The first guest, which plays the server."""
        return self.machines[0]

    @property
    def b(self) -> Vm:
        """The second guest, which plays the client."""
        return self.machines[1]

    def both(self, action: Callable[[Vm], None]) -> None:
        """Do something on both consoles at once; the first failure ends the other's wait too."""
        self.together(*(lambda machine=machine: action(machine) for machine in self.machines))

    def together(self, *actions: Callable[[], None]) -> None:
        """Run `actions` side by side, the last in this thread. Raises the first failure.

        An action waits on a console, so it ends soon after another one has failed: every console
        has this pair's trouble among its alarms. After a failure the pair is only good for ending.
        """
        threads = [
            threading.Thread(target=self._guarded, args=(action,)) for action in actions[:-1]
        ]
        for thread in threads:
            thread.start()
        try:
            self._guarded(actions[-1])
        except BaseException:  # Ctrl-C: the threads must end before their consoles do
            self._trouble = self._trouble or LabError("stopped")
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if self._failure is None:
                self._failure = self._explain(error)
                self._trouble = LabError(f"the other side failed: {self._failure}")

    def _explain(self, error: Exception) -> Exception:
        """Prefer the root cause: a dead server makes guests complain about other things."""
        return self.server.trouble() or error


@contextlib.contextmanager
def termination_as_exception() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit` in the main thread, so that `with` blocks end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
