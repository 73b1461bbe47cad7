"""The client's engine: one session, its paths and its requests."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

from bluebridge.device.layout.net.rtrs import MAX_PATHS
from bluebridge.guest.protocols.rtrs.engine.actions import (
    AddressPair,
    Closed,
    Direction,
    LinkChanged,
    Memory,
    Opened,
)
from bluebridge.guest.protocols.rtrs.engine.client.dispatch import Dispatch
from bluebridge.guest.protocols.rtrs.engine.client.path import Path
from bluebridge.guest.protocols.rtrs.engine.client.shared import Shared
from bluebridge.guest.protocols.rtrs.engine.client.traffic import Traffic
from bluebridge.guest.protocols.rtrs.engine.interface import Engine, PathStatus, Permit, State
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings


class ClientSession(Engine):
    """The `Engine` of one session of a client; raises `ValueError` for an invalid session name."""

    def __init__(
        self, name: str, memory: Memory, source: random.Random, settings: ClientSettings
    ) -> None:
        self._shared = Shared(name, memory, source, settings)
        super().__init__(self._shared.outbox, self._shared.alarms)
        self.name = name
        self._paths: list[Path] = []
        self._dispatch = Dispatch(self._shared, self._paths)
        self._last_path = 0
        self._to_open: list[Path] = []
        """The paths of `open` from the one being connected on."""
        self._opened = False
        self._open_error = 0
        """The errno with which `open` failed, while its paths are being closed; else 0."""
        self._closing = False
        self._up = 0
        """The number of connected paths."""

    # -- what the layer above asks -----------------------------------------------------------

    @property
    def mp_policy(self) -> str:
        """The multipath policy: round-robin, min-inflight or min-latency.

        Setting another raises `ValueError`.
        """
        return self._dispatch.policy

    @mp_policy.setter
    def mp_policy(self, policy: str) -> None:
        self._dispatch.policy = policy

    @property
    def max_reconnect_attempts(self) -> int:
        """The number of attempts to connect a path again; -1 for no limit."""
        return self._shared.max_reconnect_attempts

    @max_reconnect_attempts.setter
    def max_reconnect_attempts(self, most: int) -> None:
        self._shared.max_reconnect_attempts = most

    @property
    def connected(self) -> bool:
        """True when a path can take requests."""
        return self._up > 0

    @property
    def queue_depth(self) -> int:
        """The number of permits of the session, 0 before a path was first connected."""
        return self._shared.queue_depth

    @property
    def max_io_size(self) -> int:
        """The most bytes of data of one request."""
        return self._shared.max_io_size

    @property
    def paths(self) -> Sequence[PathStatus]:
        """Return all paths in the order in which they were added."""
        return [path.status for path in self._paths]

    def get_permit(self, *, admin: bool = False, cpu: int = 0) -> Permit | None:
        """Return a permit, None while all are in use; with `admin` it is for connection 0."""
        permits = self._shared.permits
        slot = permits.get() if permits is not None and not self._closing else None
        return None if slot is None else Permit(slot, cpu, admin)

    def put_permit(self, permit: Permit) -> None:
        """Give a permit back. Raises `ValueError` if it is not in use."""
        permits = self._shared.permits
        if permits is None or self._shared.requests[permit.slot].path:
            raise ValueError(f"slot {permit.slot} cannot be given back")
        permits.put(permit.slot)
        self._end_if_over()

    def request(
        self, direction: Direction, permit: Permit, user: bytes, length: int, now: float
    ) -> int:
        """Start a request of `length` bytes; returns 0 if `Finished` will follow, else an errno.

        The bytes are in the permit's slot (WRITE), or come there (READ).
        """
        if length > self._shared.slot_size:
            return errno.EMSGSIZE
        request = self._shared.requests[permit.slot]
        request.direction = direction
        request.user = user
        request.length = length
        request.cpu = permit.cpu
        request.admin = permit.admin
        return self._dispatch.start(request)

    # -- paths -----------------------------------------------------------------------------------

    def open(self, paths: Sequence[AddressPair], now: float) -> None:
        """Connect these paths, one after another; `Opened` follows.

        After a failure everything is given back. Raises `ValueError` for none or too many.
        """
        if not 0 < len(paths) <= MAX_PATHS or self._paths:
            raise ValueError(f"{len(paths)} paths")
        self._open_error = 0
        for addresses in paths:
            self._new_path(addresses)
        self._paths[0].may_create = True
        self._to_open = list(self._paths)
        self._paths[0].connect(now)

    def close(self, now: float) -> None:
        """End the session; requests in flight fail. `Closed` follows."""
        self._closing = True
        self._close_paths(now)
        self._end_if_over()

    def add_path(self, addresses: AddressPair, now: float) -> int:
        """Connect one more path; `Opened` follows. Raises `ValueError` if there are too many."""
        if len(self._paths) >= MAX_PATHS or self._closing or not self._opened:
            raise ValueError("the session takes no more paths")
        alone = not self._paths
        path = self._new_path(addresses)
        path.may_create = alone
        path.connect(now)
        return path.number

    def remove_path(self, path: int, now: float) -> None:
        """Disconnect and forget a path."""
        found = self._find(path)
        found.removing = True
        found.close(now)
        if found.state is State.CLOSED and found in self._paths:
            self._forget(found)

    def disconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path, which then stays closed."""
        self._find(path).close(now)

    def reconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path if need be, and connect it anew."""
        found = self._find(path)
        if not self._closing and not self._open_error:
            found.reconnect(now)

    # -- what paths tell --------------------------------------------------------------------------

    def path_connected(self, path: Path, now: float) -> None:
        """Note that the path takes requests."""
        self._up += 1
        if self._up == 1 and self._opened:
            self._outbox.append(LinkChanged(True))
        self._dispatch.repeat()
        if path in self._to_open:
            self._to_open.remove(path)
            if self._to_open:
                self._to_open[0].connect(now)
            else:
                self._opened = True
                self._outbox.append(Opened(None, 0))
        elif path.first:
            self._outbox.append(Opened(path.number, 0))

    def path_failed(self) -> None:
        """Note that nothing waits any more for a path that was asking."""
        self._dispatch.repeat()

    def path_drained(self, path: Path, traffic: Traffic) -> None:
        """Send the requests of a drained path elsewhere."""
        self._up -= 1
        self._dispatch.path_drained(path, traffic)
        if not self._up and self._opened:
            self._outbox.append(LinkChanged(False))

    def path_closed(self, path: Path, now: float) -> None:
        """Note that the path holds nothing any more; what waited for that goes on."""
        if path in self._to_open:
            self._to_open.clear()
            self._open_error = path.error
            self._close_paths(now)
        elif path.first and self._opened:
            self._outbox.append(Opened(path.number, path.error))
            path.removing = True
        if path.removing and path in self._paths:
            self._forget(path)
        self._end_if_over()

    # -- inside ------------------------------------------------------------------------------------

    def _new_path(self, addresses: AddressPair) -> Path:
        self._last_path += 1
        path = Path(self._shared, self, self._last_path, addresses)
        self._paths.append(path)
        return path

    def _path(self, number: int) -> Path | None:
        for path in self._paths:
            if path.number == number:
                return path
        return None

    def _find(self, number: int) -> Path:
        path = self._path(number)
        if path is None:
            raise ValueError(f"there is no path {number}")
        return path

    def _close_paths(self, now: float) -> None:
        for path in list(self._paths):
            path.close(now)

    def _forget(self, path: Path) -> None:
        self._dispatch.path_removed(path)
        path.removed()

    def _end_if_over(self) -> None:
        """Report the end when `close`, or a failed `open`, has nothing left."""
        permits, failed = self._shared.permits, self._open_error
        ending = self._closing or failed
        if not ending or any(path.state is not State.CLOSED for path in self._paths):
            return
        if permits is not None and permits.in_use:
            return
        self._paths.clear()
        self._shared.forget_slots()
        self._open_error = 0
        self._opened = False
        if failed:
            self._outbox.append(Opened(None, failed))
        if self._closing:
            self._closing = False
            self._outbox.append(Closed())
