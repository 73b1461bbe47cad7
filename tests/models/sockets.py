"""The sockets that others write to: one row for each, which fuzzers and hostile tests share.

`SOCKETS` says who writes there, what a client sends that does nothing wrong, and when it is
answered. Each is served as always, in this process: functions through libvfio-user.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar
from unittest import mock

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.layout.ntb.models import GEN1, GEN4, SWITCHTEC, BarSizes
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.pci.config_space import Bar, Identity, capabilities
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.pyvfio_user import ENVIRONMENT, Context
from bluebridge.device.pyvfio_user._callbacks import library_log
from bluebridge.device.pyvfio_user.constants import HEADER, VfioUserCommand
from bluebridge.device.server import networks
from bluebridge.device.server.control import ControlCommands, ControlSocket
from bluebridge.device.server.nic import LENGTH, Nic
from bluebridge.device.server.options import BridgeOptions
from bluebridge.device.server.process import Server
from bluebridge.device.server.settings import FunctionSpec, HcaSpec, ServerSettings
from bluebridge.host_tools.keeper.control import Control
from tests.models.endpoint_device import VECTORS, Puppet
from tests.models.hca_driver import Driver, mac_of
from tests.models.probe_device import Probe

T = TypeVar("T")
STALE, VERBOSE = 1, 2
"""Bits of `Served`'s third argument."""
PATIENCE = 5.0
"""Seconds for what threads do, such as closing files, on a busy machine."""


@dataclass(frozen=True)
class Socket:
    """A kind of socket, and what must hold whatever is written to it: `good` clients are answered,
    no descriptor stays open, nothing is logged as an error, no turn of the loop takes long.
    """

    name: str
    writer: str
    """Who can write to it."""
    good: tuple[bytes, ...]
    """Messages of a client that does nothing wrong; it waits for an answer to each."""
    answers: Callable[[bytes], bool]
    """Whether that is an answer to such a message."""
    serve: Callable[[Served], None]


class Served:
    """Sockets of a row in `folder`, `paths` by number, and their loop; `close` ends both.

    With `STALE` in `how`, a server that was killed has left a socket; with `VERBOSE`, libvfio-user
    says what it does.
    """

    def __init__(self, row: Socket, folder: Path, how: int = 0) -> None:
        _find_library()
        self.row, self.folder, self.loop = row, folder, EventLoop()
        self.stack = ExitStack()
        self.stack.callback(self.loop.close)
        if how & VERBOSE:
            before = library_log.level
            library_log.setLevel(logging.DEBUG)
            self.stack.callback(library_log.setLevel, before)
        if how & STALE:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
                left.bind(str(folder / "p"))
        self.paths: list[Path] = []
        try:
            row.serve(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Nothing is left open."""
        self.stack.close()

    def assert_good_clients_are_answered(self) -> None:
        """On every socket, one after the other."""
        for path in self.paths:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.setblocking(False)
                self._patiently(partial(client.connect, str(path)))
                for message in self.row.good:
                    client.send(message)
                    reply = self._patiently(partial(client.recv, 1 << 16))
                    assert self.row.answers(reply), f"{path.name} answers {reply!r}"

    def _patiently(self, act: Callable[[], T]) -> T:
        """Do what may have to wait for the server."""
        until = time.monotonic() + PATIENCE
        while True:
            self.loop.step(0.0)
            try:
                return act()
            except BlockingIOError:
                assert time.monotonic() < until, "no answer"


@contextmanager
def no_leak() -> Iterator[None]:
    """No more descriptors are open afterwards than before, soon; what others left may be closed."""
    before = _open_files()
    yield
    until = time.monotonic() + PATIENCE
    while _open_files() > before and time.monotonic() < until:
        time.sleep(0.0005)
    assert _open_files() <= before, f"{_open_files() - before} descriptors are left open"


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@cache
def _find_library() -> None:
    """Where libvfio-user is: where the environment says, else where `images` builds it."""
    if not os.environ.get(ENVIRONMENT):
        from bluebridge.images.artefacts import Artefacts

        os.environ[ENVIRONMENT] = str(Artefacts().libvfio_user())


# Functions of guests.


class Requested(Exception):
    """An error that a model raises because its client asks for it: no finding."""


def _asked_for(call: Callable[[], T]) -> T:
    """Return what `call` does; its exception, whose frames hold guest memory, does not stay."""
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


def _serve_probes(served: Served) -> None:
    for name in ("p", "q"):
        served.paths.append(served.folder / name)
        context = _Probe(str(served.paths[-1])).context
        served.stack.callback(context.close)
        served.loop.add_reader(context.poll_fd, partial(_run, context))


def _run(context: Context) -> None:
    context.run()


def _serve_puppet(served: Served) -> None:
    path = served.folder / "p"
    identity, bars = Identity(0x1B36, 0x0100, 0xFF0000, 0x1B36, 1), [Bar(0, 4096)]
    own = capabilities(VECTORS, 0x800, 0xC00)
    endpoint = Endpoint("p", path, identity, bars, own, VECTORS, served.loop, EventLog())
    endpoint.plug(_Puppet(endpoint))
    served.stack.callback(endpoint.close)
    served.paths.append(path)


def _serve_hcas(served: Served) -> None:
    hcas = (HcaSpec(name, served.folder / name, mac_of(at)) for at, name in enumerate("ab", 1))
    settings = ServerSettings(tuple(hcas))
    _adopt(served, Server(settings, EventLog()), settings.sockets)


def _serve_bridges(options: BridgeOptions, served: Served) -> None:
    bridges, engines = (
        tuple(FunctionSpec(name, served.folder / f"{before}{name}") for name in "ab")
        for before in ("", "dma-")
    )
    settings = ServerSettings(bridges=bridges, engines=engines, bridge=options)
    _adopt(served, Server(settings, EventLog(), training=0.0), settings.sockets)


def _adopt(served: Served, server: Server, paths: list[Path]) -> None:
    served.loop = server.loop
    served.stack.callback(server.close)
    served.paths += paths


def _message(command: VfioUserCommand, body: bytes) -> bytes:
    return HEADER.pack(1, command, HEADER.size + len(body), 0, 0) + body


_GOOD = (
    _message(VfioUserCommand.VERSION, b'\0\0\1\0{"capabilities":{"max_msg_fds":8}}\0'),
    _message(VfioUserCommand.GET_INFO, (16).to_bytes(4, "little") + bytes(12)),
)


def _is_reply(reply: bytes) -> bool:
    return len(reply) >= HEADER.size and HEADER.unpack_from(reply)[3] == 1


def _function(name: str, serve: Callable[[Served], None]) -> Socket:
    return Socket(name, "a QEMU that its guest took over", _GOOD, _is_reply, serve)


def _bridges(name: str, options: BridgeOptions) -> Socket:
    return _function(name, partial(_serve_bridges, options))


# The lab's sockets.


class _Commands(ControlCommands):
    def execute(self, line: str) -> list[str]:
        """A profile lasts as long as its line says."""
        return ["ok"] if "profile" in line else super().execute(line)


def _serve_control(served: Served) -> None:
    driver = Driver().start()
    commands = _Commands({"a": driver.hca}, FaultRules(driver.host.call_later, EventLog()))
    served.paths.append(served.folder / "control")
    control = ControlSocket(served.paths[0], commands, served.loop)
    served.stack.callback(control.close)


def _serve_keeper(served: Served) -> None:
    served.paths.append(served.folder / "keeper")
    control = Control(served.paths[0], lambda request, progress: {"seconds": 1.5})
    served.loop.add_reader(control.fileno(), control.serve)
    served.stack.callback(control.close)
    served.stack.callback(served.loop.remove_reader, control.fileno())


class _Echo:
    """A port that sends each frame for it back."""

    def __init__(self, fabric: LocalFabric) -> None:
        self._fabric = fabric
        fabric.attach(self)
        fabric.announce(self, {mac_of(1)}, up=True)

    def receive(self, message: Message) -> int:
        """Frames of the NIC."""
        assert isinstance(message, Frames)
        for frame in (bytes(frame) for train in message.trains for frame in train.frames):
            if frame[:6] == mac_of(1):
                back = frame[6:12] + frame[:6] + frame[12:]
                self._fabric.send(self, Frames(back[:6], [Train([back])]))
        return 0


def _serve_nic(served: Served) -> None:
    served.paths.append(served.folder / "nic")
    # It takes no client while it closes another in a thread; a second's rest would be for nothing.
    served.stack.enter_context(mock.patch.object(networks, "REST_SECONDS", 0.001))
    fabric = LocalFabric()
    nic = Nic(HcaSpec("b", served.paths[0], mac_of(2)), fabric, fabric, served.loop)
    served.stack.callback(nic.close)
    _Echo(fabric)


_FRAME = mac_of(1) + mac_of(2) + b"\x08\x06" + bytes(46)
SOCKETS = (
    _function("probe", _serve_probes),
    _function("puppet", _serve_puppet),
    _function("hca", _serve_hcas),
    _bridges("gen4", BridgeOptions(GEN4.name)),
    _bridges("gen1", BridgeOptions(GEN1.name)),
    _bridges("switchtec", BridgeOptions(SWITCHTEC.name)),
    _bridges("alias", BridgeOptions(GEN4.name, BarSizes.NTRDMA.value, window_alias=True)),
    Socket(
        "control",
        "the user's other programs",
        (b"status\n",),
        lambda reply: reply.endswith(b"ok\n"),
        _serve_control,
    ),
    Socket(
        "keeper",
        "the user's other programs",
        (b'{"restart": "a"}\n',),
        lambda reply: reply == b'{"done": {"seconds": 1.5}}\n',
        _serve_keeper,
    ),
    Socket(
        "nic",
        "a QEMU that its guest took over",
        (LENGTH.pack(len(_FRAME)) + _FRAME,),
        lambda reply: reply[LENGTH.size :] == mac_of(2) + mac_of(1) + _FRAME[12:],
        _serve_nic,
    ),
)
