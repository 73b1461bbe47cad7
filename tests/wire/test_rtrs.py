"""RTRS over the HCAs of the device server: the guest's engines, verbs and CM, without guests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings, Timing
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import Device
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.vfio_user.bus import Ram, SocketBus
from tests.models.server import ServerProcess, functions
from tests.models.verbs.rtrs_contract import (
    CLIENT,
    LIKELY,
    PATH,
    SERVER,
    SMALL,
    RtrsContract,
    RtrsPair,
    interfaces_on,
    rtrs_pair,
)
from tests.wire.conftest import StartServer


@contextmanager
def pair_on_hcas(
    server_on: dict[str, Path],
    client_on: dict[str, Path],
    client_settings: ClientSettings,
    server_settings: ServerSettings,
) -> Iterator[RtrsPair]:
    """Both sides, with the socket of an HCA for each of their addresses."""
    with ExitStack() as stack:
        server, client = (hca_interfaces(stack, sockets) for sockets in (server_on, client_on))
        yield stack.enter_context(rtrs_pair(server, client, client_settings, server_settings))


def hca_interfaces(stack: ExitStack, sockets: dict[str, Path]) -> Interfaces:
    """An HCA for each address, all in the memory of one guest; `stack` closes them."""
    ram = Ram()
    stack.callback(ram.close)
    return interfaces_on(stack, {ip: _opened(stack, path, ram) for ip, path in sockets.items()})


def _opened(stack: ExitStack, socket: Path, ram: Ram) -> Device:
    bus = SocketBus(socket, ram)
    stack.callback(bus.close)
    return stack.enter_context(open_device(bus, vectors=16))


class TestHca(RtrsContract):
    """Between two HCAs."""

    @pytest.fixture
    def ends(
        self, hca_server: tuple[ServerProcess, Path]
    ) -> Iterator[tuple[Interfaces, Interfaces]]:
        """The server's interfaces and the client's."""
        _, folder = hca_server
        with ExitStack() as stack:
            server = hca_interfaces(stack, {SERVER: folder / "a"})
            yield server, hca_interfaces(stack, {CLIENT: folder / "b"})


SECOND = AddressPair("10.9.1.2", "10.9.1.1")
QUICK = Timing(heartbeat=0.2, missed_heartbeats=4, connect=3.0, backoff=0.05, establish=1.0)


@dataclass(frozen=True)
class TwoPaths:
    """A server of four HCAs: a and b are the first path, c and d the second one."""

    folder: Path

    def tell(self, line: str) -> None:
        """A line for the control socket."""
        hardware.tell(self.folder / "control", line)

    @property
    def server_on(self) -> dict[str, Path]:
        """The server's addresses and sockets."""
        return {SERVER: self.folder / "a", SECOND.destination: self.folder / "c"}

    @property
    def client_on(self) -> dict[str, Path]:
        """The client's addresses and sockets."""
        return {CLIENT: self.folder / "b", SECOND.source: self.folder / "d"}


@pytest.fixture
def two_paths(start_server: StartServer, tmp_path: Path) -> TwoPaths:
    words = functions(tmp_path, names="abcd")
    start_server("bluebridge.device", *words, "--control", str(tmp_path / "control"))
    return TwoPaths(tmp_path)


@pytest.mark.brief("round-robin")
@pytest.mark.parametrize("policy", ["round-robin", "min-inflight", "min-latency"])
def test_a_path_dies_silently_under_traffic_and_comes_back(
    two_paths: TwoPaths, policy: str
) -> None:
    client = replace(LIKELY, timing=QUICK, mp_policy=policy)
    server = replace(SMALL, timing=QUICK)
    with pair_on_hcas(two_paths.server_on, two_paths.client_on, client, server) as pair:
        assert pair.open([PATH, SECOND]) == 0
        traffic = pair.start_traffic(count=120, length=8192, depth=8)
        two_paths.tell("drop d")
        totals = pair.finish(traffic)
        assert (totals.errors, totals.mismatches, totals.requests) == (0, 0, 240)
        assert pair.loop.run_until(lambda: pair.states()[1] != "connected", 20.0)
        two_paths.tell("remove all")
        assert pair.loop.run_until(lambda: pair.states() == ["connected"] * 2, 30.0), pair.states()
        first, second = pair.client.engine.paths
        assert second.statistics.reconnects == 1
        before = second.statistics.reads
        again = pair.finish(pair.start_traffic(count=40, length=8192, depth=8))
        assert (again.errors, again.mismatches) == (0, 0)
        assert second.statistics.reads > before or policy != "round-robin"
        assert first.statistics.inflight == second.statistics.inflight == 0
        pair.close()


def test_a_path_whose_info_req_never_arrives_does_not_block_those_after_it(
    two_paths: TwoPaths,
) -> None:
    """Linux 6.12 answers EEXIST from then on, if the client's farewell gets lost, too."""
    client = replace(LIKELY, timing=QUICK)
    server = replace(SMALL, timing=QUICK)
    with pair_on_hcas(two_paths.server_on, two_paths.client_on, client, server) as pair:
        assert pair.open([PATH]) == 0
        two_paths.tell("drop d opcode=SEND length=272")
        two_paths.tell("drop d cm=DREQ")
        engine, user = pair.client.engine, pair.client_user
        pair.client.transport.call(lambda now: engine.add_path(SECOND, now))
        assert pair.loop.run_until(lambda: bool(user.opened), 30.0)
        assert user.opened.pop() != 0
        assert [path.state for path in engine.paths] == ["connected"]
        two_paths.tell("remove all")

        def second_try_works() -> bool:
            if user.opened and user.opened.pop() == 0:
                return True
            if len(engine.paths) == 1:
                pair.client.transport.call(lambda now: engine.add_path(SECOND, now))
            return False

        assert pair.loop.run_until(second_try_works, 30.0)
        assert pair.states() == ["connected", "connected"]
        pair.close()
