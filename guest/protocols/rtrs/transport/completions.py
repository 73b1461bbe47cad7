"""Delivery of the completions of all connections to the engine."""

from __future__ import annotations

import select
from collections.abc import Callable

from bluebridge.guest.protocols.rtrs.engine.interface import Engine
from bluebridge.guest.protocols.rtrs.transport.connection import RECEIVE, VerbsConnection
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.verbs import CompletionQueue, Wc, WcStatus

BATCH = 32
"""The most completions that one connection may have before the others have their turn."""
_SUCCESS, _FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


class Completions:
    """A `loop.Source` of the completion queues; all of them are armed before the loop waits.

    `perform` carries out the engine's actions after it was told of completions.
    """

    def __init__(
        self, engine: Engine, perform: Callable[[], None], interfaces: Interfaces, loop: Loop
    ) -> None:
        self._engine = engine
        self._perform = perform
        self._now: Callable[[], float] = loop.now
        self._unarmed: dict[int, VerbsConnection] = {}
        self._by_queue: dict[CompletionQueue, VerbsConnection] = {}
        self._channels = [interface.channel for interface in interfaces.all]
        for channel in self._channels:
            loop.register(channel.fileno(), select.EPOLLIN, self._events)

    def add(self, connection: VerbsConnection) -> None:
        """Poll a connection's queue from now on."""
        assert connection.cq is not None
        self._unarmed[connection.number] = connection
        self._by_queue[connection.cq] = connection

    def remove(self, connection: VerbsConnection) -> None:
        """Forget a completion queue that is about to go."""
        self._unarmed.pop(connection.number, None)
        if connection.cq is not None:
            self._by_queue.pop(connection.cq, None)

    def work(self) -> bool:
        """Tell the engine about the completions there are; returns True if there were any."""
        worked = False
        for connection in list(self._unarmed.values()):
            worked |= self.take(connection)
        if worked:
            self._perform()
        return worked

    def arm(self) -> None:
        """Ask for one event at the next completion of each queue that was polled."""
        for connection in self._unarmed.values():
            if connection.cq is not None:
                connection.cq.req_notify()
        self._unarmed.clear()

    def take(self, connection: VerbsConnection) -> bool:
        """Tell the engine of one connection's completions; returns whether there were any."""
        if connection.cq is None or connection.closing:
            return False
        completions = connection.cq.poll(BATCH)
        for wc in completions:
            if connection.closing:
                break
            self._tell(connection, wc)
        return bool(completions)

    def _tell(self, connection: VerbsConnection, wc: Wc) -> None:
        engine, number = self._engine, connection.number
        if wc.status is not _SUCCESS:
            if wc.status is not _FLUSHED:
                engine.failed(number, wc.status.name, self._now())
        elif wc.wr_id & RECEIVE:
            engine.received(number, connection.receive(wc), self._now())
        elif wc.wr_id:
            engine.sent(number, wc.wr_id, self._now())

    def _events(self, _events: int) -> None:
        """Poll the queues again whose event came."""
        for channel in self._channels:
            while (queue := channel.get_event(0)) is not None:
                connection = self._by_queue.get(queue)
                if connection is not None:
                    self._unarmed[connection.number] = connection
