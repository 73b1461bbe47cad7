"""Notices the end of a pair's processes, and tells a guest's shutdown from a killed QEMU."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Sequence

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.device_server import DeviceServer
from bluebridge.host_tools.machine.vm import Vm


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

    def add(self, stream: socket.socket) -> None:
        """Have `wait` return also when `stream` can be read."""
        self._selector.register(stream, selectors.EVENT_READ)

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
