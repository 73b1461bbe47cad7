"""A side that comes, does something that can be checked, and leaves, or ends at a given state."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.connections import open_connections
from bluebridge.guest.protocols.cm import CmId, ConnectionManager, ConnParam, EventType
from bluebridge.guest.protocols.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.protocols.ntrdma.survival.meeting import SECONDS, Lost, Meeting
from bluebridge.guest.protocols.ntrdma.survival.stay import CLIENT, PORT, SERVER

STOP, CLOSE = "stop", "close"
Opener = Callable[[Sequence[Callable[[PortState], None]]], NtrdmaDevice]
"""Opens the device, with those who are told the states of its port."""
WORKING = (None, PortState.QUIESCE, PortState.READY)
"""The points at which to end that take a peer before: nowhere, in the midst of work, its end."""
_AGAIN_SECONDS = 0.1


@dataclass
class Plan:
    """At which state of the port to end, and how: stopped by SIGSTOP, or closed in order."""

    at: PortState | None = None
    then: str = CLOSE
    rounds: int = 3


class Visit:
    """One life of a side, from opening the device to its end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._came = threading.Event()
        self._working = True

    def run(self, opener: Opener) -> None:
        """Raises `Lost`, `WrongData`, `DeviceError`."""
        with ExitStack() as owned:
            device = owned.enter_context(opener([self._entered]))
            if self._plan.at in WORKING:
                device.wait_ready(SECONDS)
                self._work(device)
            elif not self._came.wait(SECONDS):
                raise Lost("the port has not come to that state")

    def _entered(self, state: PortState) -> None:
        """Of the port; under the service's lock."""
        plan = self._plan
        ends = state is plan.at and (state is not PortState.READY or not self._working)
        if not ends or (state is PortState.QUIESCE and self._working):
            return
        self._came.set()
        if plan.then == STOP:
            stop()

    def _work(self, device: NtrdmaDevice) -> None:
        with ExitStack() as owned:
            manager = open_connections(device, CLIENT, owned)
            meeting = Meeting(device)
            identifier = connect(manager, meeting)
            meeting.exchange(self._plan.rounds)
            if self._plan.at is PortState.READY:
                meeting.begin_writing()
                if self._plan.then == STOP:
                    stop()
                return
            if self._plan.at is None:
                identifier.disconnect()
                meeting.close()
        self._working = False


def stop() -> None:
    """This process stands still, and is to be killed."""
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def connect(manager: ConnectionManager, meeting: Meeting) -> CmId:
    """Connect to the side that stays, which may not listen yet. Raises `Lost`."""
    deadline = time.monotonic() + SECONDS
    while True:
        identifier = manager.create_id()
        if _asked(identifier, meeting):
            return identifier
        identifier.destroy()
        if time.monotonic() > deadline:
            raise Lost("the peer does not take the connection")
        meeting.qp.modify_reset()
        time.sleep(_AGAIN_SECONDS)


def _asked(identifier: CmId, meeting: Meeting) -> bool:
    identifier.resolve_addr(SERVER, PORT, SECONDS)
    event = identifier.events.get(SECONDS)
    if event is None or event.type is not EventType.ADDR_RESOLVED:
        return False
    identifier.resolve_route()
    identifier.events.get(SECONDS)
    identifier.attach(meeting.qp)
    identifier.connect(ConnParam(private_data=meeting.hello))
    event = identifier.events.get(SECONDS)
    if event is None or event.type is not EventType.ESTABLISHED:
        return False
    meeting.meet(event.private_data)
    return True
