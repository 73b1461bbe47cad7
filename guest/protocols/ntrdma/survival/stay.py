"""The side that lives on: it takes whoever connects, and says what it holds after each visit."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bluebridge.guest.protocols.cm import CmId, ConnectionManager, ConnParam, EventType
from bluebridge.guest.protocols.cm.identifier import CmEvent
from bluebridge.guest.protocols.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.protocols.ntrdma.survival.meeting import Lost, Meeting
from bluebridge.guest.verbs import DeviceLost, VerbsError

SERVER, CLIENT = "10.9.2.1", "10.9.2.2"
PORT = 19766
_PAUSE = 0.001
_STATUS = "/proc/self/status"


def holdings() -> dict[str, int]:
    """Open files, threads and resident memory in kilobytes of this process."""
    with open(_STATUS) as stream:
        words = dict(line.split(":", 1) for line in stream)
    kilobytes = int(words["VmRSS"].split()[0])
    files = len(os.listdir("/proc/self/fd"))
    return {"files": files, "threads": threading.active_count(), "kilobytes": kilobytes}


class Staying:
    """Serves visits on a device; `orderly` and `lost` count how they ended."""

    def __init__(self, device: NtrdmaDevice, manager: ConnectionManager) -> None:
        self._device = device
        self._listener = manager.create_id()
        self._listener.bind_addr(SERVER, PORT)
        self._listener.listen()
        self._next: CmEvent | None = None
        self.orderly = self.lost = 0

    def serve(self) -> None:
        """Wait for a visit, serve it to its end, and say so."""
        event, self._next = self._next or self._listener.events.get(1.0), None
        if event is None or event.type is not EventType.CONNECT_REQUEST:
            return
        try:
            self._visit(event)
            self.orderly += 1
        except DeviceLost:
            raise
        except (Lost, OSError, VerbsError):
            self.lost += 1
        said = {"orderly": self.orderly, "lost": self.lost, **holdings()}
        print(json.dumps(said), flush=True)

    def _visit(self, request: CmEvent) -> None:
        with self._meeting(request.id) as meeting:
            meeting.meet(request.private_data)
            request.id.attach(meeting.qp)
            request.id.accept(ConnParam(private_data=meeting.hello))
            while not self._over(request.id):
                if not meeting.answer():
                    time.sleep(_PAUSE)

    @contextmanager
    def _meeting(self, identifier: CmId) -> Iterator[Meeting]:
        meeting = Meeting(self._device)
        try:
            yield meeting
        finally:
            identifier.destroy()
            meeting.close()

    def _over(self, identifier: CmId) -> bool:
        """Whether the visitor has left, or another one stands before the door. Raises `Lost`."""
        event = self._listener.events.get_nowait()
        if event is None:
            return False
        if event.type is EventType.CONNECT_REQUEST:
            self._next = event
            raise Lost("another visitor has come")
        return event.id is identifier and event.type is not EventType.ESTABLISHED
