"""The process of a keeper: it starts a pair, describes it in a file, and ends with it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError, Progress, of_system
from bluebridge.host_tools.keeper import control, record
from bluebridge.host_tools.keeper.claims import Claim, removed_at_end
from bluebridge.host_tools.keeper.control import Control
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord, Plan
from bluebridge.host_tools.lab import folders, network_boot
from bluebridge.host_tools.lab.device_server import DeviceServer
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.qemu_arguments import NetworkBoot
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.processes import termination_as_exception

_LOOK_SECONDS = 0.5
"""The seconds between two looks at transcripts; the end of a process is noticed at once."""
KEEP = b"keep"
"""The message by which `up` has a keeper stay after `up` ends, sent when all pairs have started."""


class EndWatch:
    """Waits for the end of any process of a pair."""

    def __init__(self, machines: Sequence[Vm], server: DeviceServer | None) -> None:
        """Watch the guests `machines`, which are up, and their device server if they have one."""
        self._server = server
        self._selector = selectors.DefaultSelector()
        if server is not None:
            self._add_process(server.pid)
        for machine in machines:
            self.add_guest(machine)

    def add(self, descriptor: int) -> None:
        """Have `wait` return also when `descriptor` can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def add_guest(self, machine: Vm) -> None:
        """Watch the process of a guest that has just been started."""
        self._add_process(machine.pid)

    def _add_process(self, pid: int) -> None:
        # A child that has ended is a zombie until we wait for it, so the number is still its own.
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, "process")

    def wait(self, seconds: float) -> None:
        """Return when a process ended, when an added stream can be read, or after `seconds`."""
        for key, _ in self._selector.select(seconds):
            if key.data == "process":
                self._selector.unregister(key.fileobj)
                os.close(key.fd)

    def end(self, machine: Vm) -> str:
        """Return how the guest ended by itself; empty while it runs.

        Raises `LabError` when its QEMU was killed or crashed: that is the pair's end.
        """
        trouble = machine.trouble()
        if trouble is None:
            return ""
        if machine.was_killed():
            raise LabError(f"guest {machine.name}: its QEMU (process {machine.pid}) was killed")
        if not machine.ended_by_itself():
            raise trouble
        return remark(machine) or "it was switched off or rebooted"

    def check_server(self) -> None:
        """Raise `LabError` when the device server has ended."""
        if self._server is not None and (trouble := self._server.trouble()) is not None:
            raise trouble

    def close(self) -> None:
        """Close the descriptors of the watched processes."""
        for key in list(self._selector.get_map().values()):
            if key.data == "process":
                with contextlib.suppress(OSError):
                    os.close(key.fd)
        self._selector.close()


def remark(machine: Vm) -> str:
    """Return the clause in which the guest's console tells of a kernel in trouble; else empty."""
    found = machine.kernel_trouble()
    return "" if found is None else found.what.removeprefix(f"guest {machine.name}: ")


def run(claim: Claim, plan: Plan, up: socket.socket, parent: int) -> int:
    """Run as the process of a keeper, forked by `parent`; return its exit status.

    `up` is the socket to the parent, which runs `bluebridge up`. Until it says `KEEP`, the keeper
    ends with the parent. SIGINT, which `down` sends, ends it in good order; so do SIGTERM and
    SIGHUP, but then the end is recorded.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with termination_as_exception():
            processes.follow(parent)
            Keeper(claim, plan, up).run()
    except LabError as error:
        _tell(up, error)
        return 1
    except OSError as error:
        _tell(up, of_system(error))
        return 1
    except SystemExit:
        return 1
    except KeyboardInterrupt:
        _tell(up, LabError("stopped by `bluebridge down`"))
        return 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _tell(up: socket.socket, error: LabError) -> None:
    """Tell `up` why there will be no pair; the socket is closed if `up` has its pair already."""
    with contextlib.suppress(OSError):
        control.send(up, error=control.error_fields(error))


class Keeper:
    """Keeps one pair: starts it, describes it to other processes, serves their requests."""

    def __init__(self, claim: Claim, plan: Plan, up: socket.socket) -> None:
        names = plan.config.names
        guests = [GuestRecord(name, devices=list(plan.devices(name))) for name in names]
        self._record = PairRecord(claim.number, guests, keeper=os.getpid(), started=time.time())
        self._record.modules = [str(path) for path in plan.modules]
        self._claim = claim
        self._plan = plan
        self._up = up
        self._listener: Progress = self._tell_up

    def run(self) -> None:
        """Start the pair and keep it until its end. Raises `LabError` with the cause of its end."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(removed_at_end(self._claim))
            self._write()
            if self._plan.verbose:
                self._say(f"keeper: started (process {os.getpid()})")
            logs = folders.log_folder(self._plan.config.log)
            self._settle(logs)
            config = replace(self._plan.config, log=logs)
            detail = self._say if self._plan.verbose else None
            self._pair = stack.enter_context(Pair(config, self._say, detail))
            self._equip(self._pair.machines)
            self._watch = EndWatch(
                self._pair.machines, self._pair.server if config.serves else None
            )
            stack.callback(self._watch.close)
            self._control = Control(self._claim.control, self._handle)
            stack.callback(self._control.close)
            self._watch.add(self._control.fileno())
            self._ready()
            stack.enter_context(self._recorded_end())
            while True:
                self._watch.wait(_LOOK_SECONDS)
                self._look()
                self._control.serve()

    def _say(self, message: str) -> None:
        self._listener(message)

    def _tell_up(self, message: str) -> None:
        with contextlib.suppress(OSError):  # `up` has gone: a signal follows
            control.send(self._up, progress=message)

    def _write(self) -> None:
        self._record.write(self._claim.description)

    def _rewrite(self) -> None:
        """Write the changed record; a full disk is ignored, since it need not end the pair."""
        try:
            self._write()
        except OSError as error:
            print(f"the description of the pair is out of date: {error}", flush=True)

    def _settle(self, logs: Path) -> None:
        """Leave the terminal and the folder of the command `up`; output goes to keeper.log."""
        self._record.logs = str(logs)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(logs / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        sys.stderr.flush()
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(nothing)
        os.close(log)

    def _equip(self, machines: list[Vm]) -> None:
        """Put the archives of the plan into the guests, then its modules."""
        if self._plan.archives:
            from bluebridge.host_tools.lab import artefacts

            self._say("unpacking " + ", ".join(path.name for path in self._plan.archives))
            self._each(machines, lambda machine: artefacts.unpack(machine, self._plan.archives))
        if self._plan.modules:
            from bluebridge.host_tools.keeper import modules

            self._say("loading " + ", ".join(path.name for path in self._plan.modules))
            self._each(machines, lambda machine: modules.load(machine, self._plan.modules))

    def _each(self, machines: list[Vm], do: Callable[[Vm], None]) -> None:
        if len(machines) == 1:
            # Not side by side with anything: a failure then is this guest's, not the pair's.
            do(machines[0])
            return
        self._pair.together(*(partial(do, machine) for machine in machines))

    def _ready(self) -> None:
        """Tell `up` that the pair is ready, and go on only when it answers `KEEP`."""
        for machine in self._pair.machines:
            self._describe(machine)
        for host in self._pair.hosts.values():
            side = self._record.guest(host.name)
            side.state, side.functions = record.RUNNING, [each.word for each in host.functions]
        self._record.folder = str(self._pair.folder)
        self._record.server = self._pair.server.pid if self._plan.config.serves else 0
        self._record.warnings = list(self._pair.warnings)
        self._record.state = record.RUNNING
        self._write()
        control.send(self._up, done={})
        if self._up.recv(len(KEEP)) != KEEP:
            raise SystemExit(1)
        processes.outlive_parent()
        self._up.close()
        self._listener = print
        self._record_end(f"its keeper (process {os.getpid()}) was killed")

    def _describe(self, machine: Vm) -> None:
        machine.forget_agent()  # its ports are for others
        guest = self._record.guest(machine.name)
        guest.state, guest.why, guest.remark = record.RUNNING, "", ""
        guest.pid = machine.pid
        guest.transcript = str(machine.transcript)
        guest.console = str(machine.console_socket)
        guest.agents = [str(path) for path in machine.agent_sockets]

    def _look(self) -> None:
        """Look for processes that have ended. Raises `LabError` when that ends the pair."""
        self._watch.check_server()
        changed = False
        for machine in self._pair.machines:
            guest = self._record.guest(machine.name)
            if guest.state != record.RUNNING:
                continue
            before = (guest.state, guest.remark)
            if why := self._watch.end(machine):
                guest.state, guest.why = record.ENDED, why
            else:
                guest.remark = remark(machine)
            changed |= before != (guest.state, guest.remark)
        if changed:
            self._rewrite()

    # Requests.

    def _handle(self, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        ((kind, name),) = request.items() if len(request) == 1 else (("", ""),)
        if kind not in ("restart", "boot", "may boot") or name not in self._plan.config.names:
            raise LabError(f"the keeper does not understand {request!r}", "is it of this version?")
        if self._plan.config.window_alias:
            raise LabError(
                "a guest whose memory is its peer's window cannot be restarted alone",
                "use `bluebridge down` and `up`",
            )
        if kind != "restart":
            network_boot.check(self._plan.config)
        if kind == "may boot":
            return {}
        machine = self._pair.machine(str(name))
        self._listener = progress
        try:
            boot = self._pair.network_boot(machine.name) if kind == "boot" else None
            return {"seconds": self._restart(machine, boot, progress)}
        finally:
            self._listener = print

    def _restart(self, machine: Vm, boot: NetworkBoot | None, progress: Progress) -> float:
        guest = self._record.guest(machine.name)
        guest.state, guest.why = record.RESTARTING, "it is being restarted"
        self._rewrite()
        progress(f"restarting guest {machine.name}")
        try:
            seconds = self._pair.restart(machine.name, boot)
            self._record.warnings = list(self._pair.warnings)
            machine = self._pair.machine(machine.name)
            self._equip([machine])
            self._describe(machine)
            self._watch.add_guest(machine)
            return seconds
        except LabError as error:
            guest.why = f"it did not restart: {error.what}"
            if machine.was_killed():  # that is the end of the pair, as `_look` will find
                guest.state = record.RUNNING
            else:
                machine.stop()
                guest.state = record.ENDED
            raise
        finally:
            self._rewrite()

    # The end.

    @contextlib.contextmanager
    def _recorded_end(self) -> Iterator[None]:
        """Write why the pair ends into its description and, unless told to end, its end record."""
        try:
            yield
        except BaseException as error:
            more = ""
            if isinstance(error, KeyboardInterrupt):
                why = "it was taken down"
            elif isinstance(error, SystemExit):
                why = f"its keeper was ended by signal {int(str(error.code)) - 128}"
            elif isinstance(error, LabError):
                why = error.what
            else:
                traceback.print_exc()
                what = of_system(error).what if isinstance(error, OSError) else repr(error)
                why, more = f"its keeper failed: {what}", f"; read {self._record.logs}/keeper.log"
            self._describe_end(why)
            if isinstance(error, KeyboardInterrupt):
                record.forget_end(self._record.number)
            else:
                self._record_end(why + more)
            raise

    def _describe_end(self, why: str) -> None:
        # No signal must interrupt the cleaning up that follows.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._record.state, self._record.why = record.ENDING, why
        self._rewrite()

    def _record_end(self, why: str) -> None:
        record.write_end(self._record.number, tuple(self._record.names()), why, self._record.logs)
