"""A block device over the loopback: in a guest, until SIGTERM.

`python3 -m tests.models.rnbd.nbd_loopback NAME=ram:SIZE` below /opt/bluebridge.
"""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.protocols.rnbd.backend.specification import export_of
from bluebridge.guest.protocols.rnbd.engine.actions import Done, Mapped, PermitFree
from bluebridge.guest.protocols.rnbd.nbd.device import NbdDevice
from bluebridge.guest.protocols.rnbd.nbd.kernel import connect
from bluebridge.guest.protocols.rnbd.nbd.loop import Handler
from tests.models.rnbd.loopback import Loopback


class PollLoop:
    """A loop over poll."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def register(self, fd: int, events: int, handler: Handler) -> None:
        """As `Loop.register`."""
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def unregister(self, fd: int) -> None:
        """As `Loop.unregister`."""
        if self._handlers.pop(fd, None):
            self._poll.unregister(fd)

    def call_at(self, time: float, handler: Callable[[], None]) -> None:
        """As `Loop.call_at`."""
        self._timers.append((time, handler))

    def turn(self, timeout: float) -> None:
        """Wait once."""
        due = [item for item in self._timers if item[0] <= time.monotonic()]
        self._timers = [item for item in self._timers if item not in due]
        for _, handler in due:
            handler()
        for fd, events in self._poll.poll(timeout * 1000):
            if fd in self._handlers:
                self._handlers[fd](events)


def serve(words: str) -> None:
    """Map, serve the block device, end at a signal."""
    loop = PollLoop()
    both = Loopback([export_of(words)], queue_depth=64)
    both.open()
    device = both.client.map(words.partition("=")[0], AccessMode.RW, 0.0)
    both.pump()
    assert Mapped(device, 0) in both.client.take_actions()
    kernel = connect(device.geometry, device.access, both.client.max_io_size)
    running = [True]

    def actions() -> None:
        for action in both.client.take_actions():
            if isinstance(action, Done):
                block.done(action)
            elif isinstance(action, PermitFree):
                block.permit_free()

    def step() -> None:
        both.pump(actions)

    block = NbdDevice(both.client, device, kernel.connection, loop, step, running.clear)

    def stop(number: int, frame: FrameType | None) -> None:
        kernel.disconnect()

    signal.signal(signal.SIGTERM, stop)
    print(f"rnbd: mapped {kernel.path} size {device.geometry.sectors * 512}", flush=True)
    while running:
        loop.turn(1.0)
    assert both.transport.free == 64, both.transport.free
    print("ended", both.lines, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
