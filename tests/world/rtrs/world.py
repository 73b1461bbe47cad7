"""One world: a client and a server with a seed, what happens to them, and what must hold."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence

from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from bluebridge.guest.protocols.rtrs.engine.client.dispatch import POLICIES
from bluebridge.guest.protocols.rtrs.engine.interface import PathStatus
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings
from tests.world.clock import Clock
from tests.world.rtrs.application import Application, Disk, Lost, Store, Truth
from tests.world.rtrs.connection import End, Wire
from tests.world.rtrs.machine import ClientMachine, Machine, Network, ServerMachine

SECONDS = 120.0
"""Of faults, in the world's time."""
QUIET_SECONDS = 30.0
"""Of a world without faults."""
HEARTBEATS = 50.0
"""Seconds after which a peer that hangs is noticed: 7 intervals of 5, and some for looking."""
RECOVERY = 600.0
"""So long everything may take to work again once nothing is broken any more."""


FAULTS = {
    "silence": 3,
    "break_connection": 2,
    "cut": 1,
    "kill_client": 1,
    "kill_server": 1,
    "hang": 1,
    "lose_info_request": 1,
    "reconnect_in_silence": 1,
    "ask_for_disconnect": 1,
    "ask_for_reconnect": 1,
    "remove_path": 1,
    "add_path": 1,
    "disconnect_by_server": 1,
    "change_policy": 1,
}
"""How often each comes, as shares."""


class World:
    """`run` raises `Lost` or `AssertionError` if something does not hold."""

    def __init__(self, seed: int, *, faults: Sequence[str] = tuple(FAULTS)) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.network = Network(self.clock, self.random)
        choose = self.random.choice
        count = choose((1, 2, 2, 2, 3))
        self.pairs = [AddressPair(f"10.9.{n}.1", f"10.9.{n}.2") for n in range(count)]
        self.wires = [Wire() for _pair in self.pairs]
        self.network.wires = dict(zip(self.pairs, self.wires, strict=True))
        self.server_settings = ServerSettings(
            queue_depth=choose((1, 2, 3, 4, 7, 16)),
            max_chunk_size=8192,
            always_invalidate=choose((True, False)),
            max_chunks_per_region=choose((1, 3, 16)),
        )
        self.client_settings = ClientSettings(
            cpus=choose((1, 2, 3)),
            mp_policy=choose(POLICIES),
            need_inval=choose((True, True, False)),
            reconnect_delay=choose((0.0, 2.0, 10.0)),
        )
        self.disk = Disk()
        self.truth = Truth()
        self.sent: dict[int, int] = {}
        self.faulty = True
        self.vanished = False
        self.clients = 0
        self._faults = faults
        self._shares = [FAULTS[fault] for fault in faults]
        self.server = self._new_server()
        self.client, self.application = self._new_client()

    def run(self) -> None:
        """Faults for a while, then peace, a look at everything, and the end."""
        if self._faults:
            self.clock.after(self._pause(), self._fault)
        self.clock.run(lambda: False, SECONDS if self._faults else QUIET_SECONDS)
        self.faulty = False
        self._heal()
        self._await(lambda: self._works(), "the session does not come back")
        self._await(lambda: self.application.idle, "requests are never finished")
        self.application.read_all()
        self._end()

    def vanish(self, side: str, step: int) -> None:
        """Let the client or the server die after it has done `step` things, and come back."""

        def die() -> None:
            self.vanished = True
            if side == "client":
                self._client_dies()
            else:
                self._server_dies()

        machine = self.client if side == "client" else self.server
        machine.die_after(step, die)

    # -- machines --------------------------------------------------------------------------------

    def _new_server(self) -> ServerMachine:
        store = Store(self.disk, self.random)
        machine = ServerMachine(self.network, store, self.server_settings)
        store.machine = machine
        return machine

    def _new_client(self) -> tuple[ClientMachine, Application]:
        self.clients += 1
        application = Application(self.truth, self.disk, self.random, lambda: self.faulty)
        machine = ClientMachine(self.network, application, "world", self.client_settings)
        application.machine = machine
        self._open(machine, application)
        return machine, application

    def _open(self, machine: ClientMachine, application: Application) -> None:
        """Open the session, again and again until that succeeds."""
        application.opened = None
        machine.tell(lambda now: machine.session.open(self.pairs, now))
        self.clock.after(1.0, lambda: self._look_at_open(machine, application))

    def _look_at_open(self, machine: ClientMachine, application: Application) -> None:
        opened = application.opened
        if not machine.alive:
            return
        if opened is None or machine.hangs:
            self.clock.after(1.0, lambda: self._look_at_open(machine, application))
        elif opened.errno:
            self._check_client_is_empty(machine)
            self._open(machine, application)
        else:
            application.run(self.server_settings.queue_depth + 2)

    # -- faults ----------------------------------------------------------------------------------

    def _pause(self) -> float:
        return self.random.expovariate(1 / 6.0)

    def _fault(self) -> None:
        if not self.faulty:
            return
        (fault,) = self.random.choices(self._faults, self._shares)
        getattr(self, f"_{fault}")()
        self.clock.after(self._pause(), self._fault)

    def _silence(self) -> None:
        wire = self.random.choice(self.wires)
        ways = self.random.choice(((0,), (1,), (0, 1), (0, 1)))
        wire.silence(*ways)
        until = self.random.choice((0.1, 3.0, 20.0, 60.0)) * self.random.random()
        self.clock.after(until, lambda: self._restore(wire))

    def _restore(self, wire: Wire) -> None:
        wire.passes[0] = wire.passes[1] = True

    def _break_connection(self) -> None:
        machine = self.random.choice((self.client, self.server))
        if machine.ends:
            self.random.choice(list(machine.ends.values())).break_off("broken")

    def _cut(self) -> None:
        """Both sides are told at once; the wire is silent for a while."""
        wire = self.random.choice(self.wires)
        wire.silence(0, 1)
        for machine in (self.client, self.server):
            for end in list(machine.ends.values()):
                if end.wire is wire:
                    end.break_off("cut")
        self.clock.after(self.random.random() * 10, lambda: self._restore(wire))

    def _kill_client(self) -> None:
        if self.random.random() < 0.5 and self.client.alive:
            self._client_dies()

    def _client_dies(self) -> None:
        self.client.die()
        self._note_sends()
        self.application.died()
        self.clock.after(self.random.random() * 20, self._restart_client)

    def _restart_client(self) -> None:
        if not self.client.alive:
            self.client, self.application = self._new_client()

    def _kill_server(self) -> None:
        if self.random.random() < 0.5 and self.server.alive:
            self._server_dies()

    def _server_dies(self) -> None:
        self.server.die()
        self.clock.after(self.random.random() * 20, self._restart_server)

    def _restart_server(self) -> None:
        if not self.server.alive:
            self.server = self._new_server()

    def _hang(self) -> None:
        """A program stands still: its peer must notice by the heartbeats alone."""
        if self.client.hangs or self.server.hangs:
            return
        machine, now = self.random.choice((self.client, self.server)), self.clock.now
        machine.hangs_since = now
        self.clock.after(HEARTBEATS, lambda: self._check_noticed(machine, now))
        self.clock.after(self.random.choice((5.0, 20.0, HEARTBEATS + 1.0)), machine.go_on)

    def _check_noticed(self, machine: Machine, since: float) -> None:
        """The peer of a program that hangs since then has no connected path."""
        if machine.hangs_since != since or machine not in (self.client, self.server):
            return
        paths = self.client.session.paths
        if machine is self.client:
            paths = [path for session in self.server.server.sessions for path in session.paths]
        if any(path.state == "connected" for path in paths):
            raise Lost("a peer that hangs is not noticed")

    def _lose_info_request(self) -> None:
        """Connect anew; all connections come up, then nothing passes until the client gives up."""

        def lose(end: End) -> None:
            self.clock.after(0.0, lambda: end.wire.silence(0))
            self.clock.after(20.0, lambda: self._restore(end.wire))

        self.client.before_info = lose
        self._ask_for_reconnect()

    def _reconnect_in_silence(self) -> None:
        """Requests that got stuck on a path may still come through while it is disconnected."""
        if (path := self._path()) is not None:
            wire, number = self.network.wires[path.addresses], path.path
            wire.silence(0)
            self.clock.after(0.8, lambda: self._tell_reconnect(number))
            self.clock.after(1.0, lambda: self._restore(wire))

    def _path(self) -> PathStatus | None:
        paths = self.client.session.paths
        return self.random.choice(paths) if paths and self._runs() else None

    def _runs(self) -> bool:
        return self.client.alive and not self.client.hangs

    def _ask_for_disconnect(self) -> None:
        if (path := self._path()) is not None:
            number = path.path
            self.client.tell(lambda now: self.client.session.disconnect_path(number, now))
            self.clock.after(self.random.random() * 20, self._reconnect_all)

    def _ask_for_reconnect(self) -> None:
        if (path := self._path()) is not None:
            self._tell_reconnect(path.path)

    def _tell_reconnect(self, number: int) -> None:
        if any(path.path == number for path in self.client.session.paths):
            self.client.tell(lambda now: self.client.session.reconnect_path(number, now))

    def _reconnect_all(self) -> None:
        session = self.client.session
        if self._runs():
            for path in session.paths:
                if path.state == "closed":
                    self._tell_reconnect(path.path)

    def _remove_path(self) -> None:
        if (path := self._path()) is not None and self._is_open():
            number = path.path
            self.client.tell(lambda now: self.client.session.remove_path(number, now))
            self.clock.after(self.random.random() * 10, self._add_path)

    def _add_path(self) -> None:
        if self.faulty and self._runs() and self._is_open():
            used = {path.addresses for path in self.client.session.paths}
            free = [pair for pair in self.pairs if pair not in used]
            pair = self.random.choice(free or self.pairs)
            self._tell_add(pair)

    def _disconnect_by_server(self) -> None:
        if not self.server.alive or self.server.hangs:
            return
        numbers = [path.path for session in self.server.server.sessions for path in session.paths]
        if numbers:
            number = self.random.choice(numbers)
            self.server.tell(lambda now: self.server.server.disconnect_path(number, now))

    def _change_policy(self) -> None:
        self.client.session.mp_policy = self.random.choice(POLICIES)

    # -- peace -----------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        opened = self.application.opened
        return opened is not None and not opened.errno

    def _heal(self) -> None:
        for wire in self.wires:
            self._restore(wire)
        for machine in (self.client, self.server):
            if machine.hangs:
                machine.go_on()
        self.client.before_info = None
        self._restart_server()
        self._restart_client()

    def _works(self) -> bool:
        """Every address has a connected path; missing ones are asked for again."""
        session = self.client.session
        if not self._is_open():
            return False
        self._reconnect_all()
        known = {path.addresses for path in session.paths}
        up = {path.addresses for path in session.paths if path.state == "connected"}
        for pair in self.pairs:
            if pair not in known:
                self._tell_add(pair)
        return up == set(self.pairs)

    def _tell_add(self, pair: AddressPair) -> None:
        self.client.tell(lambda now: self.client.session.add_path(pair, now))

    def _await(self, condition: object, failure: str) -> None:
        assert callable(condition)
        end = self.clock.now + RECOVERY
        while not condition():
            if self.clock.now > end:
                raise Lost(failure)
            self.clock.run(lambda: False, 1.0)

    def _note_sends(self) -> None:
        for head, count in self.client.sends.items():
            tag = struct.unpack("<I", head)[0]
            self.sent[tag] = self.sent.get(tag, 0) + count

    def _end(self) -> None:
        """Close the session, then the server; nothing is left of either."""
        self._note_sends()
        for tag, count in self.disk.executed.items():
            if count > self.sent.get(tag, 0):
                raise Lost(f"request {tag} was sent {self.sent.get(tag, 0)} times, served {count}")
        inflight = [path.statistics.inflight for path in self.client.session.paths]
        if any(inflight):
            raise Lost(f"nothing is in flight, but the paths count {inflight}")
        self.client.tell(self.client.session.close)
        self._await(lambda: self.application.closed, "the session does not end")
        self._check_client_is_empty(self.client)
        self._await(lambda: not self.server.server.sessions, "the server's session does not end")
        self._check_server_is_empty()
        self.server.tell(self.server.server.close)

    def _check_client_is_empty(self, client: ClientMachine) -> None:
        left: Sequence[object] = [
            *client.ends,
            *client.slots.data,
            *client.session.paths,
            client.keys.count,
        ]
        if any(left) or client.session.deadline is not None:
            raise Lost(f"the client leaks: {client.ends}, {client.session.paths}")

    def _check_server_is_empty(self) -> None:
        server = self.server
        left = [*server.ends, *server.chunks.data, server.keys.count]
        if any(left) or server.server.deadline is not None:
            raise Lost(f"the server leaks: {server.ends}, {list(server.chunks.data)}")


def run(seed: int, faults: Sequence[str] = tuple(FAULTS)) -> World:
    """A world with this seed, from its beginning to its end."""
    world = World(seed, faults=faults)
    world.run()
    return world


def replay(seed: int, faults: Sequence[str] = tuple(FAULTS)) -> Counter[str]:
    """Run a world; what happened in it."""
    world = run(seed, faults)
    again = sum(count > 1 for count in world.sent.values())
    return Counter({"requests served": sum(world.disk.executed.values()), "sent again": again})
