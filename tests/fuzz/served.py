"""Functions that are served as always, by libvfio-user in this process, and their clients."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.layout.ntb.models import GEN1, GEN4, SWITCHTEC, BarSizes
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.pci.config_space import Bar, Identity, capabilities
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.device.pyvfio_user._callbacks import library_log
from bluebridge.device.server.bridges import BridgeSpec, FunctionSpec
from bluebridge.device.server.networks import HcaSpec
from bluebridge.device.server.options import BridgeOptions
from bluebridge.device.server.process import Server
from tests.fuzz.machines import mac_of
from tests.wire.endpoint_device import VECTORS, Puppet
from tests.wire.probe_device import Probe

PROBE, PUPPET, HCAS, FIRST_BRIDGES = range(4)
BRIDGES = (
    BridgeOptions(GEN4.name),
    BridgeOptions(GEN1.name),
    BridgeOptions(SWITCHTEC.name),
    BridgeOptions(GEN4.name, BarSizes.NTRDMA.value, window_alias=True),
)
"""What is served, by the first byte of an input: one of these, or the three before."""
STALE, VERBOSE = 1, 2
"""Bits of the second byte."""
KINDS = FIRST_BRIDGES + len(BRIDGES)


@cache
def find_library() -> None:
    """Where libvfio-user is: where the environment says, else where `images` builds it."""
    if not os.environ.get(ENVIRONMENT):
        from bluebridge.images.artefacts import Artefacts

        os.environ[ENVIRONMENT] = str(Artefacts().libvfio_user())


T = TypeVar("T")


class Requested(Exception):
    """What a model raises because its client asks for it: no finding."""


def _asked_for(call: Callable[[], T]) -> T:
    """What `call` returns; its exception, whose frames hold guest memory, does not stay alive."""
    with suppress(OSError, ValueError, TypeError, KeyError, OverflowError, DmaError):
        return call()
    raise Requested


class _Probe(Probe):
    def read(self, offset: int, length: int) -> bytes:
        """At 0x1c a byte too few would be logged."""
        return _asked_for(lambda: super(_Probe, self).read(offset, length)).ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """Where there is no memory, there is nothing to write."""
        _asked_for(lambda: super(_Probe, self).write(offset, data))


class _Puppet(Puppet):
    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """As the puppet does."""
        found = _asked_for(lambda: super(_Puppet, self).bar_read(bar, offset, length))
        return found.ljust(length, b"\0")

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """As the puppet does."""
        _asked_for(lambda: super(_Puppet, self).bar_write(bar, offset, data))


class Served:
    """Functions on sockets in `folder`, `paths` by number, and their loop; `close` ends both.

    With `STALE` in `how`, a server that was killed has left a socket; with `VERBOSE`, libvfio-user
    says what it does.
    """

    def __init__(self, kind: int, how: int, folder: Path) -> None:
        find_library()
        self._stack = ExitStack()
        if how & VERBOSE:
            before = library_log.level
            library_log.setLevel(logging.DEBUG)
            self._stack.callback(library_log.setLevel, before)
        if how & STALE:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
                left.bind(str(folder / "p"))
        self.paths: list[Path] = []
        self.loop = EventLoop()
        try:
            self._serve(kind % KINDS, folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Nothing is left open."""
        self._stack.close()

    def _serve(self, kind: int, folder: Path) -> None:
        if kind >= HCAS:
            server = _server(kind, folder, self.paths)
            self.loop.close()
            self.loop = server.loop
            self._stack.callback(server.close)
            return
        self._stack.callback(self.loop.close)
        if kind == PROBE:
            for name in ("p", "q"):
                self._probe(folder / name)
        else:
            self._puppet(folder / "p")

    def _probe(self, path: Path) -> None:
        context = _Probe(str(path)).context
        self._stack.callback(context.close)
        self.loop.add_reader(context.poll_fd, lambda: _ignore(context.run()))
        self.paths.append(path)

    def _puppet(self, path: Path) -> None:
        endpoint = Endpoint(
            "p",
            path,
            Identity(0x1B36, 0x0100, 0xFF0000, 0x1B36, 1),
            [Bar(0, 4096)],
            capabilities(VECTORS, 0x800, 0xC00),
            VECTORS,
            self.loop,
            EventLog(),
        )
        endpoint.plug(_Puppet(endpoint))
        self._stack.callback(endpoint.close)
        self.paths.append(path)


def _ignore(_: object) -> None:
    pass


def _server(kind: int, folder: Path, paths: list[Path]) -> Server:
    if kind == HCAS:
        specs = [HcaSpec(name, folder / name, mac_of(at)) for at, name in enumerate("ab", 1)]
        paths += [spec.socket for spec in specs]
        return Server(specs, EventLog())
    bridges, engines = (list(_functions(folder, before)) for before in ("", "dma-"))
    paths += [each.socket for each in (*bridges, *engines)]
    options = BRIDGES[kind - FIRST_BRIDGES]
    return Server([], EventLog(), bridges=BridgeSpec(bridges, engines, options, training=0.0))


def _functions(folder: Path, before: str) -> Iterator[FunctionSpec]:
    return (FunctionSpec(name, folder / f"{before}{name}") for name in "ab")


def kind_of(options: Sequence[str]) -> int:
    """What the device server's command line `options` make it serve."""
    if "--ntb" not in options:
        return HCAS
    for number, each in enumerate(BRIDGES):
        alias = "--window-alias" in options
        if alias == each.window_alias and (each.ntb_model in options or alias):
            return FIRST_BRIDGES + number
    return FIRST_BRIDGES
