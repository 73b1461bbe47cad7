"""Block devices over RTRS.

Words behind `python3 -m bluebridge.guest.protocols.rnbd`:

    server --interface 10.9.0.1/24 --export disk=ram:256M
    client --interface 10.9.0.2/24 --session s --device disk --path 10.9.0.2@10.9.0.1
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
from collections.abc import Mapping, Sequence

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.protocols.rnbd.backend import export_of
from bluebridge.guest.protocols.rnbd.block_devices import BlockDevices
from bluebridge.guest.protocols.rnbd.engine.client import RnbdClient
from bluebridge.guest.protocols.rnbd.engine.server import RnbdServer
from bluebridge.guest.protocols.rnbd.files import ClientFiles, ServerFiles
from bluebridge.guest.protocols.rnbd.nbd.kernel import load_module
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    Closed,
    Finished,
    LinkChanged,
    Opened,
    PathChanged,
    Serve,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.files import ClientFiles as RtrsClientFiles
from bluebridge.guest.protocols.rtrs.files import ServerFiles as RtrsServerFiles
from bluebridge.guest.protocols.rtrs.program import (
    CLOSE_SECONDS,
    client_settings,
    on_signals,
    paths_of,
    program_parser,
    run_program,
    served,
    server_settings,
)
from bluebridge.guest.protocols.rtrs.transport.interfaces import AddressError, Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.transport import ClientSide, ServerSide


class ClientProgram:
    """Maps devices; ends at a signal, or when no device is left. Raises `ValueError`, `OSError`."""

    def __init__(self, given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> None:
        load_module()
        settings = client_settings(given)
        self._paths = paths_of(given)
        self._wanted: list[str] = given.device
        self._access = accesses()[given.access]
        self._loop = loop
        self._closing = False
        self._signals = 0
        self._handled = 0
        self.side = ClientSide(
            interfaces, loop, self._take, given.session, random.Random(), settings
        )
        self.client = RnbdClient(self.side.engine, self.side.slots.data, log)
        self.devices = BlockDevices(self.client, loop, self.side.transport.perform, log)
        cpus = os.cpu_count() or 1
        self._files = RtrsClientFiles(self.side.engine, self.side.transport.call, cpus)
        name = given.session.replace("/", "!")
        self._trees = {
            f"rtrs-client/{name}": self._files.tree,
            f"rnbd-client/{name}": ClientFiles(self.devices, cpus).tree,
        }

    def run(self) -> int:
        """Map the devices, serve them, unmap them; returns the exit status."""
        engine = self.side.engine
        try:
            with on_signals(self._signal), contextlib.ExitStack() as stack:
                for place, tree in self._trees.items():
                    stack.enter_context(served(self._loop, place, tree, log))
                for name in self._wanted:
                    self.devices.map(name, self._access)
                self.side.transport.call(lambda now: engine.open(self._paths, now))
                self.devices.step()
                while not self.devices.closed:
                    self._loop.turn()
                    self._after_turn()
        finally:
            self.side.close()
        return 1 if self.devices.failed else 0

    def _signal(self) -> None:
        """Count a signal, in its handler; the loop then ends its turn."""
        self._signals += 1
        self._loop.stop()

    def _after_turn(self) -> None:
        if self._signals > self._handled:
            self._handled = self._signals
            self._unmap_all(force=self._signals > 1)
        waiting = self.client.devices or (self.client.unmapping and self._signals < 2)
        if not waiting and not self._closing:
            # End the session, after a while also without its answer.
            self._closing = True
            self._loop.call_at(self._loop.now() + CLOSE_SECONDS, self._give_up)
            self.side.transport.call(self.side.engine.close)

    def _unmap_all(self, *, force: bool) -> None:
        """Unmap all devices at a signal; those in use stay until the next one."""
        for device in list(self.client.devices):
            try:
                self.devices.unmap(device, force=force)
            except OSError as error:
                log(f"{error.strerror}: umount it, or send the signal again")

    def _give_up(self) -> None:
        self.devices.closed = True

    def _take(self, action: Action) -> None:
        if isinstance(action, Finished | LinkChanged | Opened | Closed):
            self.client.handle(action, self._loop.now())
            self.devices.drain()
        if isinstance(action, Opened | PathChanged):
            self._files.changed(action)
        if isinstance(action, PathChanged):
            log(f"path {action.path} {action.state} {action.reason}".rstrip())


def accesses() -> Mapping[str, AccessMode]:
    """Return the access modes by the kernel's words."""
    return {mode.name.lower(): mode for mode in AccessMode}


def log(line: str) -> None:
    """Print one line for the user."""
    print(f"rnbd: {line}", flush=True)


class ServerProgram:
    """Exports until a signal comes. Raises `ValueError` and `OSError` for wrong exports."""

    def __init__(self, given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> None:
        exports = [export_of(words) for words in given.export]
        settings = server_settings(given)
        self._loop = loop
        self._closed = False
        self._names = [export.name for export in exports]
        self.side = ServerSide(interfaces, loop, self._take, settings, given.port)
        self.server = RnbdServer(self.side.engine.respond, self.side.chunks.view, exports, log)
        self._trees = {
            "rtrs-server": RtrsServerFiles(self.side.engine, self.side.transport.call).tree,
            "rnbd-server": ServerFiles(self.server).tree,
        }

    def run(self) -> int:
        """Serve until a signal; returns the exit status."""
        try:
            with on_signals(self._loop.stop), contextlib.ExitStack() as stack:
                for place, tree in self._trees.items():
                    stack.enter_context(served(self._loop, place, tree, log))
                log(f"serving {' '.join(self._names)}")
                self._loop.run()
            self.side.transport.call(self.side.engine.close)
            self._loop.run_until(lambda: self._closed, CLOSE_SECONDS)
        finally:
            self.side.close()
        return 0

    def _take(self, action: Action) -> None:
        if isinstance(action, Serve):
            self.server.handle(action, self._loop.now())
        elif isinstance(action, SessionUp | SessionDown):
            self.server.handle(action, self._loop.now())
            log(f"session {action.session} {'up' if isinstance(action, SessionUp) else 'down'}")
        elif isinstance(action, PathChanged):
            log(f"path {action.path} {action.state} {action.reason}".rstrip())
        elif isinstance(action, Closed):
            self._closed = True


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 for a session or a device that failed, 2 for a wrong call."""
    return run_program("rnbd", _parser().parse_args(arguments))


def _serve(given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> int:
    if given.address:
        interfaces = _only(interfaces, given.address.split(","))
    return ServerProgram(given, interfaces, loop).run()


def _only(interfaces: Interfaces, addresses: Sequence[str]) -> Interfaces:
    """Return the interfaces with `addresses`; raises `AddressError` for one that nobody has."""
    ours = {interface.address: interface for interface in interfaces.all}
    for address in addresses:
        if address not in ours:
            raise AddressError(f"{address} is no address of --interface, but {', '.join(ours)}")
    return Interfaces([ours[address] for address in addresses])


def _parser() -> argparse.ArgumentParser:
    parser, server, client = program_parser(
        "rnbd",
        __doc__,
        "export files and RAM disks until a signal comes",
        "map devices until a signal comes",
    )
    server.add_argument(
        "--address",
        metavar="IP[,IP...]",
        help="listen on these addresses only (default: on all of --interface)",
    )
    server.add_argument(
        "--export",
        action="append",
        required=True,
        metavar="NAME=FILE|NAME=ram:SIZE",
        help="a file, a block device, or memory such as ram:256M; may be repeated",
    )
    server.set_defaults(run=_serve)
    client.add_argument("--device", action="append", required=True, help="may be repeated")
    client.add_argument("--access", choices=tuple(accesses()), default="rw", help="default rw")
    client.set_defaults(run=lambda *given: ClientProgram(*given).run())
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    raise SystemExit(main())
