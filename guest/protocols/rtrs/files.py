"""Sessions and paths of RTRS as trees of files: rtrs-client and rtrs-server below /sys/class.

Names, formats and error numbers are those of Linux 6.12: rtrs-clt-sysfs.c, rtrs-clt-stats.c,
rtrs-srv-sysfs.c and rtrs-srv-stats.c. docs/rtrs-files.md lists where the document of 2019 says
otherwise.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable, Mapping

from bluebridge.guest.fuse.tree import (
    Answer,
    Directory,
    File,
    Link,
    Node,
    acting,
    command,
    directory,
    parse_int,
    text,
)
from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair, Opened, PathChanged
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.interface import PathStatus, SessionStatus, Statistics
from bluebridge.guest.protocols.rtrs.engine.server.server import Server

_PREFIX = "ip:"
_NOTHING = "<invalid address family>"

_POLICIES = (("round-robin", "rr"), ("min-inflight", "mi"), ("min-latency", "ml"))

MIN_ATTEMPTS, MAX_ATTEMPTS = -1, 9999
_ADD_PATH = (
    "Usage: echo [<source addr>@]<destination addr> > add_path\n\n"
    "*addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]\n"
)

Call = Callable[[Callable[[float], None]], None]
"""The type of a call that runs a function with the time, then carries out the engine's actions."""
Outcome = Callable[[], int | None]
"""The type of a call for a command's outcome: 0 or an errno, None while it is unknown."""


def address_text(address: str) -> str:
    """Return an address in the kernel's notation; "" stands for an unknown one."""
    return f"{_PREFIX}{address}" if address else _NOTHING


def pair_text(pair: AddressPair) -> str:
    """Return the name of a path's directory."""
    return f"{address_text(pair.source)}@{address_text(pair.destination)}"


def parse_pair(words: str) -> AddressPair:
    """Parse [SOURCE@]DESTINATION, or with a comma; raises `OSError` with EINVAL.

    IPv6 addresses and GIDs, which the kernel takes as well, are refused.
    """
    separator = "," if "," in words else "@"
    source, found, destination = words.partition(separator)
    if not found:
        return AddressPair("", _parse(source))
    return AddressPair(_parse(source), _parse(destination))


def _parse(words: str) -> str:
    try:
        if not words.startswith(_PREFIX):
            raise ValueError(words)
        return str(ipaddress.IPv4Address(words.removeprefix(_PREFIX)))
    except ValueError:
        raise OSError(errno.EINVAL, f"{words!r} is not ip:ADDRESS") from None


def statistics(counts: Statistics, migrations: str) -> Directory:
    """Return the directory `stats` of a client's path."""

    def rdma() -> str:
        return (
            f"{counts.reads} {counts.read_bytes} {counts.writes} {counts.write_bytes} "
            f"{counts.inflight} {counts.failovers}\n"
        )

    return directory(
        {
            "cpu_migration_from": resettable(lambda: migrations, lambda: None),
            "cpu_migration_to": resettable(lambda: migrations, lambda: None),
            "reconnects": resettable(
                lambda: f"{counts.reconnects} {counts.failed_reconnects}\n", counts.reset_reconnects
            ),
            "rdma": resettable(rdma, counts.reset_requests),
            "reset_all": resettable(lambda: "echo 1 to reset all statistics\n", counts.reset),
        }
    )


def _ends(path: PathStatus) -> dict[str, Node]:
    return {
        "hca_name": text(lambda: path.hca),
        "hca_port": text(lambda: path.port),
        "src_addr": text(lambda: address_text(path.addresses.source)),
        "dst_addr": text(lambda: address_text(path.addresses.destination)),
    }


def resettable(read: Callable[[], str], reset: Callable[[], None]) -> File:
    """Return a file of counts, which a write of "1" sets to zero."""

    def act(answer: Answer) -> None:
        reset()
        answer.done()

    return acting(read, act)


def policy_text(policy: str) -> str:
    """Return the content of the file mpath_policy for a policy."""
    for number, (name, short) in enumerate(_POLICIES):
        if name == policy:
            return f"{name} ({short.upper()}: {number})\n"
    return f"Unknown ({policy})\n"


def parse_policy(data: bytes) -> str:
    """Parse a policy by number, name or two letters, as the kernel does; raises `OSError`."""
    try:
        number = parse_int(data)
        if 0 <= number < len(_POLICIES):
            return _POLICIES[number][0]
    except OSError:
        pass
    words = data.partition(b"\0")[0].lower()
    for name, short in _POLICIES:
        if words.startswith(name.encode()) or words.removesuffix(b"\n") == short.encode():
            return name
    raise OSError(errno.EINVAL, "no policy")


class ClientFiles:
    """The tree of files of a session; `changed` takes the engine's news about paths.

    `tree` is the directory. `cpus` is how many numbers the files of migrations between CPUs have,
    all 0 in this program.
    """

    def __init__(self, engine: ClientSession, call: Call, cpus: int) -> None:
        self._engine = engine
        self._call = call
        self._migrations = "0 " * cpus + "\n"
        self._waiting: list[tuple[Outcome, Answer]] = []
        self._adding: dict[int, Answer] = {}
        self.tree = directory(
            {
                "max_reconnect_attempts": File(
                    lambda: f"{engine.max_reconnect_attempts}\n", self._set_attempts
                ),
                "mpath_policy": File(lambda: policy_text(engine.mp_policy), self._set_policy),
                "mp_policy": Link("mpath_policy"),
                "add_path": File(lambda: _ADD_PATH, self._add_path),
                "paths": Directory(self._paths),
            }
        )

    def changed(self, action: PathChanged | Opened) -> None:
        """Answer the writers whose command is carried out, or cannot be any more."""
        if isinstance(action, Opened) and action.path in self._adding:
            self._adding.pop(action.path).done(action.errno)
        waiting, self._waiting = self._waiting, []
        for outcome, answer in waiting:
            self._wait(outcome, answer)

    def _wait(self, outcome: Outcome, answer: Answer) -> None:
        result = outcome()
        if result is None:
            self._waiting.append((outcome, answer))
        else:
            answer.done(result)

    # -- the session -------------------------------------------------------------------------

    def _set_attempts(self, data: bytes, answer: Answer) -> None:
        value = parse_int(data)
        if not MIN_ATTEMPTS <= value <= MAX_ATTEMPTS:
            raise OSError(errno.EINVAL, "-1 to 9999")
        self._engine.max_reconnect_attempts = value
        answer.done()

    def _set_policy(self, data: bytes, answer: Answer) -> None:
        self._engine.mp_policy = parse_policy(data)
        answer.done()

    def _add_path(self, data: bytes, answer: Answer) -> None:
        words = data.partition(b"\0")[0].partition(b"\n")[0].decode(errors="replace")
        addresses = parse_pair(words)
        if pair_text(addresses) in self._paths():
            raise FileExistsError(errno.EEXIST, words)

        def add(now: float) -> None:
            number = self._engine.add_path(addresses, now)
            self._adding[number] = answer

        try:
            self._call(add)
        except ValueError:
            raise OSError(errno.EINVAL, words) from None

    # -- paths -------------------------------------------------------------------------------

    def _paths(self) -> Mapping[str, Node]:
        return {
            pair_text(path.addresses): self._path(path)
            for path in self._engine.paths
            if path.path not in self._adding
        }

    def _path(self, path: PathStatus) -> Directory:
        return directory(
            {
                **_ends(path),
                "state": text(lambda: "connected" if path.state == "connected" else "disconnected"),
                "reconnect": command("reconnect", lambda answer: self._reconnect(path, answer)),
                "disconnect": command("disconnect", lambda answer: self._disconnect(path, answer)),
                "remove_path": command("remove_path", lambda answer: self._remove(path, answer)),
                "cur_latency": text(lambda: f"{int(path.latency * 1e9)} ns"),
                "stats": statistics(path.statistics, self._migrations),
            }
        )

    def _now(self, number: int) -> PathStatus | None:
        return next((path for path in self._engine.paths if path.path == number), None)

    def _ask(self, event: Callable[[float], None]) -> None:
        """Run `event` with the engine; raises `OSError` with ENODEV if the path has gone."""
        try:
            self._call(event)
        except ValueError:
            raise OSError(errno.ENODEV, "the path has gone") from None

    def _reconnect(self, path: PathStatus, answer: Answer) -> None:
        """Reconnect a path; the answer comes when it is connected or the attempt failed."""
        if path.state in ("connecting", "closing"):
            raise OSError(errno.EBUSY, path.state)
        failed = path.statistics.failed_reconnects
        left = path.state != "connected"

        def outcome() -> int | None:
            nonlocal left
            found = self._now(path.path)
            if found is None or found.state in ("closed", "dead"):
                return errno.ENOTCONN
            if found.state != "connected":
                left = True
            elif left:
                return 0
            lost = found.statistics.failed_reconnects != failed
            return errno.ENOTCONN if lost else None

        self._ask(lambda now: self._engine.reconnect_path(path.path, now))
        self._wait(outcome, answer)

    def _disconnect(self, path: PathStatus, answer: Answer) -> None:

        def outcome() -> int | None:
            found = self._now(path.path)
            return 0 if found is None or found.state in ("closed", "dead") else None

        self._ask(lambda now: self._engine.disconnect_path(path.path, now))
        self._wait(outcome, answer)

    def _remove(self, path: PathStatus, answer: Answer) -> None:
        """Remove a path; the answer comes when it has gone."""
        self._ask(lambda now: self._engine.remove_path(path.path, now))
        self._wait(lambda: 0 if self._now(path.path) is None else None, answer)


class ServerFiles:
    """The tree of files of a server, with a directory for each session with a connected path."""

    def __init__(self, engine: Server, call: Call) -> None:
        self._engine = engine
        self._call = call
        self.tree = Directory(self._sessions)

    def _sessions(self) -> Mapping[str, Node]:
        return {
            session.name.replace("/", "!"): directory({"paths": self._paths(session)})
            for session in self._engine.sessions
            if _shown(session)
        }

    def _paths(self, session: SessionStatus) -> Directory:
        return directory({pair_text(path.addresses): self._path(path) for path in _shown(session)})

    def _path(self, path: PathStatus) -> Directory:
        return directory(
            {
                **_ends(path),
                "disconnect": command("disconnect", lambda answer: self._disconnect(path, answer)),
                "stats": _statistics(path.statistics),
            }
        )

    def _disconnect(self, path: PathStatus, answer: Answer) -> None:
        try:
            self._call(lambda now: self._engine.disconnect_path(path.path, now))
        except ValueError:
            raise OSError(errno.ENODEV, "the path has gone") from None
        answer.done()


def _shown(session: SessionStatus) -> list[PathStatus]:
    """Return the connected paths, which have files from INFO_REQ until they close."""
    return [path for path in session.paths if path.state == "connected"]


def _statistics(counts: Statistics) -> Directory:
    def rdma() -> str:
        return f"{counts.reads} {counts.read_bytes} {counts.writes} {counts.write_bytes}\n"

    return directory({"rdma": resettable(rdma, counts.reset)})
