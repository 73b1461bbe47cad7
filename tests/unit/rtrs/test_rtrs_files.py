"""The trees of RTRS, byte for byte."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair, Opened, PathChanged
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.interface import PathStatus, SessionStatus, Statistics
from bluebridge.guest.protocols.rtrs.files import ClientFiles, ServerFiles
from tests.models.fuse_peer import TreePeer, peer_of

PATH = "paths/ip:10.9.0.2@ip:10.9.0.1"


def path_status(number: int, state: str = "connected", last: int = 2) -> PathStatus:
    """A path from 10.9.0.`last`."""
    counts = Statistics()
    counts.reads, counts.read_bytes, counts.writes, counts.write_bytes = 3, 1536, 2, 8256
    counts.inflight, counts.failovers, counts.reconnects, counts.failed_reconnects = 1, 4, 5, 6
    addresses = AddressPair(f"10.9.0.{last}", "10.9.0.1")
    return PathStatus(number, addresses, state, "mlx4_0", 2, 0.001234567, counts)


class Engine:
    """The part of a client's engine that the files use; paths change as the test says."""

    def __init__(self) -> None:
        self.mp_policy = "min-inflight"
        self.max_reconnect_attempts = -1
        self.paths = [path_status(1)]
        self.calls: list[tuple[object, ...]] = []

    def add_path(self, addresses: AddressPair, now: float) -> int:
        """A path that connects."""
        self.calls.append(("add", *addresses))
        self.paths.append(PathStatus(2, addresses, "connecting", "", 0, 0.0, Statistics()))
        return 2

    def remove_path(self, path: int, now: float) -> None:
        self._called("remove", path)

    def disconnect_path(self, path: int, now: float) -> None:
        self._called("disconnect", path)

    def reconnect_path(self, path: int, now: float) -> None:
        self._called("reconnect", path)

    def _called(self, what: str, path: int) -> None:
        self.calls.append((what, path))
        if all(other.path != path for other in self.paths):
            raise ValueError(path)


class Client:
    """The tree of a session, and who changes it."""

    def __init__(self) -> None:
        self.engine = Engine()
        engine: ClientSession = self.engine  # type: ignore[assignment]
        self.files = ClientFiles(engine, lambda event: event(1.0), 2)
        self.peer = TreePeer(self.files.tree)

    def state(self, state: str) -> None:
        """Path 1 enters a state."""
        self.engine.paths[0] = self.engine.paths[0]._replace(state=state)
        self.files.changed(PathChanged(1, state, ""))


@pytest.fixture
def client() -> Iterator[Client]:
    found = Client()
    yield found
    found.peer.close()


def test_what_is_in_a_session(client: Client) -> None:
    peer = client.peer
    names = ["max_reconnect_attempts", "mpath_policy", "mp_policy", "add_path", "paths"]
    assert peer.names("") == names
    assert peer.names("paths") == ["ip:10.9.0.2@ip:10.9.0.1"]
    assert peer.names(PATH) == [
        "hca_name",
        "hca_port",
        "src_addr",
        "dst_addr",
        "state",
        "reconnect",
        "disconnect",
        "remove_path",
        "cur_latency",
        "stats",
    ]
    assert peer.names(f"{PATH}/stats") == [
        "cpu_migration_from",
        "cpu_migration_to",
        "reconnects",
        "rdma",
        "reset_all",
    ]
    assert peer.readlink("mp_policy") == "mpath_policy"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_reconnect_attempts", "-1\n"),
        ("mpath_policy", "min-inflight (MI: 1)\n"),
        (
            "add_path",
            "Usage: echo [<source addr>@]<destination addr> > add_path\n\n"
            "*addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]\n",
        ),
        (f"{PATH}/state", "connected\n"),
        (f"{PATH}/hca_name", "mlx4_0\n"),
        (f"{PATH}/hca_port", "2\n"),
        (f"{PATH}/src_addr", "ip:10.9.0.2\n"),
        (f"{PATH}/dst_addr", "ip:10.9.0.1\n"),
        (f"{PATH}/cur_latency", "1234567 ns\n"),
        (f"{PATH}/reconnect", "Usage: echo 1 > reconnect\n"),
        (f"{PATH}/disconnect", "Usage: echo 1 > disconnect\n"),
        (f"{PATH}/remove_path", "Usage: echo 1 > remove_path\n"),
        (f"{PATH}/stats/rdma", "3 1536 2 8256 1 4\n"),
        (f"{PATH}/stats/reconnects", "5 6\n"),
        (f"{PATH}/stats/cpu_migration_from", "0 0 \n"),
        (f"{PATH}/stats/cpu_migration_to", "0 0 \n"),
        (f"{PATH}/stats/reset_all", "echo 1 to reset all statistics\n"),
    ],
)
def test_the_texts_of_a_session(client: Client, name: str, text: str) -> None:
    assert client.peer.read(name) == text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("rr\n", "round-robin (RR: 0)\n"),
        ("ML", "min-latency (ML: 2)\n"),
        ("mi\n", "min-inflight (MI: 1)\n"),
        ("2\n", "min-latency (ML: 2)\n"),
        ("0", "round-robin (RR: 0)\n"),
        ("Round-Robin and more\n", "round-robin (RR: 0)\n"),
        ("MIN-LATENCY", "min-latency (ML: 2)\n"),
        ("min", None),
        ("3\n", None),
        ("-1\n", None),
        ("mx\n", None),
        ("rr \n", None),
        ("\n", None),
    ],
)
def test_policies(client: Client, words: str, shown: str | None) -> None:
    assert client.peer.write("mpath_policy", words) == (0 if shown else errno.EINVAL)
    assert client.peer.read("mpath_policy") == (shown or "min-inflight (MI: 1)\n")


def test_reconnect_attempts(client: Client) -> None:
    wanted = {"9999\n": 0, "-1": 0, "0\n": 0, "10000": 22, "-2\n": 22, "x": 22, "99999999999": 34}
    assert {words: client.peer.write("max_reconnect_attempts", words) for words in wanted} == wanted
    assert client.engine.max_reconnect_attempts == 0


def test_counts_are_reset_by_1_alone(client: Client) -> None:
    peer = client.peer
    for name in ("rdma", "reconnects", "cpu_migration_to", "reset_all"):
        for words in ("0\n", "2", "", "1 ", "on"):
            assert peer.write(f"{PATH}/stats/{name}", words) == errno.EINVAL
    assert peer.write(f"{PATH}/stats/cpu_migration_from", "1\n") == 0
    assert peer.write(f"{PATH}/stats/rdma", "1\n") == 0
    assert peer.read(f"{PATH}/stats/rdma") == "0 0 0 0 1 0\n"
    assert peer.read(f"{PATH}/stats/reconnects") == "5 6\n"
    assert peer.write(f"{PATH}/stats/reset_all", "1") == 0
    assert peer.read(f"{PATH}/stats/reconnects") == "0 0\n"


def test_reconnect_waits_until_the_path_is_connected(client: Client) -> None:
    unique = client.peer.begin_write(f"{PATH}/reconnect", "1\n")
    assert client.engine.calls == [("reconnect", 1)]
    for state in ("reconnecting", "connecting"):
        client.state(state)
        assert not client.peer.answered(unique)
        assert client.peer.read(f"{PATH}/state") == "disconnected\n"
    assert client.peer.write(f"{PATH}/reconnect", "1") == errno.EBUSY
    client.state("connected")
    client.peer.answer(unique)


@pytest.mark.parametrize("end", ["fails", "closes", "goes"])
def test_a_reconnection_that_fails(client: Client, end: str) -> None:
    unique = client.peer.begin_write(f"{PATH}/reconnect", "1\n")
    client.state("reconnecting")
    assert not client.peer.answered(unique)
    if end == "fails":
        client.engine.paths[0].statistics.failed_reconnects += 1
        client.state("reconnecting")
    elif end == "closes":
        client.state("closed")
    else:
        client.engine.paths.clear()
        client.files.changed(PathChanged(1, "dead", ""))
    with pytest.raises(OSError, match="not connected"):
        client.peer.answer(unique)


def test_disconnect_and_remove_wait(client: Client) -> None:
    unique = client.peer.begin_write(f"{PATH}/disconnect", "1\n")
    client.state("closing")
    assert not client.peer.answered(unique)
    client.state("closed")
    client.peer.answer(unique)
    assert client.peer.write(f"{PATH}/disconnect", "1\n") == 0
    unique = client.peer.begin_write(f"{PATH}/remove_path", "1\n")
    assert not client.peer.answered(unique)
    client.engine.paths.clear()
    client.files.changed(PathChanged(1, "dead", ""))
    client.peer.answer(unique)
    assert client.peer.names("paths") == []
    for name in ("reconnect", "disconnect", "remove_path"):
        with pytest.raises(FileNotFoundError):
            client.peer.lookup(f"{PATH}/{name}")


def test_commands_want_a_1(client: Client) -> None:
    for name in ("reconnect", "disconnect", "remove_path"):
        for words in ("0\n", "", "11", "yes"):
            assert client.peer.write(f"{PATH}/{name}", words) == errno.EINVAL
    assert not client.engine.calls


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ("ip:10.9.0.3@ip:10.9.0.4\n", ("10.9.0.3", "10.9.0.4")),
        ("ip:10.9.0.3,ip:10.9.0.4", ("10.9.0.3", "10.9.0.4")),
        ("ip:10.9.0.4\nignored", ("", "10.9.0.4")),
        ("10.9.0.4", None),
        ("ip:10.9.0", None),
        ("ip:10.9.0.3@10.9.0.4", None),
        ("gid:fe80::1", None),
        ("ip:fe80::1", None),
        ("", None),
        ("@", None),
    ],
)
def test_paths_are_added(client: Client, words: str, pair: tuple[str, str] | None) -> None:
    if pair is None:
        assert client.peer.write("add_path", words) == errno.EINVAL
        assert not client.engine.calls
        return
    unique = client.peer.begin_write("add_path", words)
    assert client.engine.calls == [("add", *pair)]
    assert client.peer.names("paths") == ["ip:10.9.0.2@ip:10.9.0.1"]
    assert not client.peer.answered(unique)
    client.files.changed(Opened(2, 0))
    client.peer.answer(unique)
    assert len(client.peer.names("paths")) == 2


def test_a_path_that_is_there_or_does_not_connect(client: Client) -> None:
    assert client.peer.write("add_path", "ip:10.9.0.2@ip:10.9.0.1\n") == errno.EEXIST
    unique = client.peer.begin_write("add_path", "ip:10.9.0.9\n")
    client.files.changed(Opened(2, errno.ECONNREFUSED))
    with pytest.raises(ConnectionRefusedError):
        client.peer.answer(unique)


class Server:
    """The part of a server's engine that the files use."""

    def __init__(self) -> None:
        paths = [path_status(4), path_status(5, "closing", 3)]
        self.sessions = [
            SessionStatus(1, "a/b", paths),
            SessionStatus(2, "idle", [path_status(6, "connecting", 4)]),
        ]
        self.disconnected: list[int] = []

    def disconnect_path(self, path: int, now: float) -> None:
        """Path 4 alone is there."""
        if path != 4:
            raise ValueError(path)
        self.disconnected.append(path)


@pytest.fixture
def server() -> Iterator[tuple[Server, TreePeer]]:
    """A server with one session that is connected."""
    engine = Server()
    call: Callable[[Callable[[float], None]], None] = lambda event: event(1.0)  # noqa: E731
    files = ServerFiles(engine, call)  # type: ignore[arg-type]
    with peer_of(files.tree) as peer:
        yield engine, peer


def test_a_server(server: tuple[Server, TreePeer]) -> None:
    engine, peer = server
    path = f"a!b/{PATH}"
    assert peer.names("") == ["a!b"]
    assert peer.names("a!b/paths") == ["ip:10.9.0.2@ip:10.9.0.1"]
    texts = {
        "hca_name": "mlx4_0\n",
        "hca_port": "2\n",
        "src_addr": "ip:10.9.0.2\n",
        "dst_addr": "ip:10.9.0.1\n",
        "disconnect": "Usage: echo 1 > disconnect\n",
        "stats/rdma": "3 1536 2 8256\n",
    }
    assert {name: peer.read(f"{path}/{name}") for name in texts} == texts
    assert sorted(peer.names(path)) == sorted({name.partition("/")[0] for name in texts})
    assert peer.names(f"{path}/stats") == ["rdma"]
    assert peer.write(f"{path}/stats/rdma", "0") == errno.EINVAL
    assert peer.write(f"{path}/stats/rdma", "1\n") == 0
    assert peer.read(f"{path}/stats/rdma") == "0 0 0 0\n"
    assert peer.write(f"{path}/disconnect", "0\n") == errno.EINVAL
    assert peer.write(f"{path}/disconnect", "1\n") == 0
    assert engine.disconnected == [4]
