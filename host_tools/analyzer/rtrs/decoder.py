"""Describes the events of one log, with the messages of RTRS decoded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import GSI_QPN
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.rtrs.connections import Connections, cm_text
from bluebridge.host_tools.analyzer.rtrs.message_text import request_text

_WIRE = frozenset((Kind.WIRE,))


def decoder_of(reader: LogReader, wanted: Filter) -> Callable[[Event], str]:
    """Make a function that describes each wanted event in one line.

    Before that it searches the whole log for connections, since one may have been set up before the
    first wanted event, or on another device. Raises `LogError` on damaged segments.
    """
    if wanted.kinds is not None and not wanted.kinds & _WIRE:
        return decode
    connections = Connections()
    for event in reader.events(Filter(_WIRE, until=wanted.until)):
        _observe(event, connections)
    if not connections:
        return decode
    return lambda event: _described(event, connections)


def decoder_of_live(reader: LogReader) -> Callable[[Event], str]:
    """Make a function that describes events of a log that is being written, in their order.

    Connections are those of the log up to now and those that the events themselves set up.
    """
    connections = Connections()
    for event in reader.events(Filter(_WIRE)):
        _observe(event, connections)

    def described(event: Event) -> str:
        if event.kind == Kind.WIRE:
            _observe(event, connections)
        return _described(event, connections)

    return described


def _observe(event: Event, connections: Connections) -> None:
    """Take a connection from a datagram that sets one up; other events are ignored."""
    if event.what == What.DATAGRAM and event.obj == GSI_QPN:
        with contextlib.suppress(LogError):  # shown as damaged in its place
            connections.observe(event.device, event.time, read_message(event))


def _described(event: Event, connections: Connections) -> str:
    text = decode(event)
    if event.kind != Kind.WIRE:
        return text
    try:
        more = _more(event, connections)
    except LogError:
        return text
    return f"{text} {more}" if more else text


def _more(event: Event, connections: Connections) -> str:
    if event.what == What.DATAGRAM and event.obj == GSI_QPN:
        return cm_text(read_message(event))
    if event.what != What.REQUEST:
        return ""
    message = read_message(event)
    side = connections.find(event.device, message.source_qpn, event.time)
    return "" if side is None else request_text(message, side)
