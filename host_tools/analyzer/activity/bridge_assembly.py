"""Assembles the events of bridges and DMA engines into activities of both machines.

The server does one thing at a time, so what follows an access without a gap in the numbers of
events is its effect, until the next access; only interrupts and notes may also come by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ioat import registers as ioat
from bluebridge.device.layout.ntb.models import BY_LOG_SUFFIX
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, begun
from bluebridge.host_tools.analyzer.activity.bridge_accesses import BridgeAccesses
from bluebridge.host_tools.analyzer.activity.bridge_current import CurrentActivity
from bluebridge.host_tools.analyzer.activity.bridge_doorbells import PATIENCE_SECONDS
from bluebridge.host_tools.analyzer.activity.bridge_windows import MOST_READS
from bluebridge.host_tools.analyzer.activity.engine_channel import EngineChannel
from bluebridge.host_tools.analyzer.analysis.transaction import Transaction
from bluebridge.host_tools.analyzer.bridges import family

EXPIRE_EVERY = 256
LINK_NOTE = "link "
"""The beginning of the notes about the link between two bridges."""
LINK_UP = "link up"
ABORT_NOTE = "master abort"
_HALT = "channel {} halted"


Handler = Callable[[Event, Transaction], None]


class BridgeAssembler:
    """Takes the events of bridges and engines in order, each with its transaction."""

    def __init__(self, devices: Sequence[str]) -> None:
        """`devices`: the names in the log's meta file; more may be appended later."""
        self._now = CurrentActivity()
        self._accesses = BridgeAccesses(devices, self._now)
        self._last = -1
        self._expired = 0
        self._handlers: dict[Kind, Handler] = {
            Kind.MMIO_WRITE: self._accesses.write,
            Kind.MMIO_READ: self._accesses.read,
            Kind.DMA_READ: self._dma_read,
            Kind.DMA_WRITE: self._dma_write,
            Kind.IRQ: self._interrupt,
            Kind.NOTE: self._note,
            Kind.RESET: self._reset,
            Kind.CONFIG_READ: self._now.config,
            Kind.CONFIG_WRITE: self._now.config,
        }

    def feed(self, event: Event, one: Transaction) -> list[Activity]:
        """The activities that are complete after `event`."""
        if event.number != self._last + 1:
            self._now.close()
        self._last = event.number
        self._handlers.get(event.kind, self._now.alone)(event, one)
        if event.number - self._expired >= EXPIRE_EVERY:
            self._expired = event.number
            self._expire(event.time - PATIENCE_SECONDS)
        given, self._now.given = self._now.given, []
        return given

    def finish(self) -> list[Activity]:
        """All that are left."""
        self._now.close()
        for channel in self._accesses.channels.values():
            channel.finish()
            self._now.take(channel.given)
        for doorbells in self._accesses.doorbells.values():
            doorbells.finish()
            self._now.take(doorbells.given)
        given, self._now.given = self._now.given, []
        return given

    def _expire(self, before: float) -> None:
        for doorbells in self._accesses.doorbells.values():
            doorbells.expire(before)
            self._now.take(doorbells.given)

    def _enter(self, device: str, number: int) -> EngineChannel:
        """What follows are effects of this channel."""
        channel = self._accesses.channel(device, number)
        if self._now.engine is not channel:
            self._now.close()
            self._now.engine = channel
        return channel

    def _dma_read(self, event: Event, one: Transaction) -> None:
        what = event.what
        if what is What.DESCRIPTOR:
            self._enter(event.device, event.obj).fetched(one)
        elif what is What.COPY:
            self._enter(event.device, event.obj).copied(one)
        elif what is What.WINDOW:
            self._window_read(event, one)
        else:
            self._now.alone(event, one)
        self._now.take_engine()

    def _window_read(self, event: Event, one: Transaction) -> None:
        """The peer's memory is read: by the engine, or by an access that is logged next."""
        running = self._now.engine.running if self._now.engine is not None else None
        one.text = f"of {one.address:#x} of {_machine(one)}"
        if running is not None and running.moving is not None:
            self._now.engine_effect(running, one)
            return
        if self._now.window is None or self._now.window.writes:
            answered, self._now.answered = self._now.answered, []
            self._now.close()
            self._now.answered = answered
        self._now.answered.append((event, one))
        if len(self._now.answered) > MOST_READS:
            self._now.close()

    def _dma_write(self, event: Event, one: Transaction) -> None:
        what = event.what
        if what is What.COPY:
            self._enter(event.device, event.obj).copied(one)
        elif what is What.COMPLETION:
            self._enter(event.device, event.obj).completed(one)
        elif what in (What.WINDOW, What.MESSAGE):
            one.text = _arrival(one, event)
            if not self._now.effect(one):
                self._now.alone(event, one)
        else:
            self._now.alone(event, one)
        self._now.take_engine()

    def _interrupt(self, event: Event, one: Transaction) -> None:
        one.text = f"interrupt, vector {event.address}"
        if family(event.device) == ioat.LOG_SUFFIX:
            expected = self._now.access is not None or self._now.engine is not None
            if not (expected and self._now.effect(one)):
                self._now.alone(event, one)
        elif not self._bell(one) and not (self._now.changes_link() and self._now.effect(one)):
            self._now.alone(event, one)

    def _bell(self, one: Transaction) -> bool:
        """Whether an interrupt of a bridge announces a doorbell or a message."""
        bells = self._accesses.bells(one.device)
        bits = bells.bits_of(one.address)
        rung = self._now.rung
        if rung is not None and rung.bits & bits:
            one.remote = True
            rung.interrupt(one, bits, 0)
            return True
        waiting = None if self._now.changes_link() else bells.waiting(bits)
        if waiting is None:
            return False
        cause = 0
        access = self._now.access
        if access is not None and self._now.unmasks and access.device == one.device:
            # The guest unmasks the doorbell: that access is a part of it.
            cause = waiting.activity.add(access.transactions[0], 0)
            access.transactions[0].remote = True
            for effect in access.transactions[1:]:
                waiting.activity.add(effect, cause)
            self._now.access = None
        else:
            self._now.close()
        one.remote = True
        waiting.interrupt(one, bits, cause)
        self._now.rung = waiting
        return True

    def _note(self, event: Event, one: Transaction) -> None:
        if event.text.startswith(LINK_NOTE) and family(event.device) in BY_LOG_SUFFIX:
            self._link(one)
            return
        halted = _HALT.format(event.text.split(" ")[1]) if " " in event.text else ""
        if halted and event.text.startswith(halted):
            self._halt(event, one)
        elif self._now.effect(one):
            self._problem(event)
        else:
            self._now.alone(event, one)

    def _halt(self, event: Event, one: Transaction) -> None:
        number = event.text.split(" ")[1]
        self._enter(event.device, int(number) if number.isdecimal() else 0).halted(one)
        self._now.take_engine()

    def _problem(self, event: Event) -> None:
        """A note that says why something did not work is the status of what caused it."""
        if not event.text.startswith((ABORT_NOTE, "interrupt ", "an interrupt message")):
            return
        activity = self._now.window.activity if self._now.window is not None else None
        if activity is None and self._now.rung is not None:
            activity = self._now.rung.activity
        if activity is not None and not activity.status:
            activity.status = event.text

    def _link(self, one: Transaction) -> None:
        """The link went down by an access or a reset, or came up by itself after training."""
        access = self._now.access
        by_itself = one.text == LINK_UP and not self._now.changes_link()
        if access is None or by_itself or access.kind is ActivityKind.CONFIG:
            self._now.begin(begun(one, ActivityKind.LINK, one.text))
            return
        if access.kind is ActivityKind.ACCESS:
            access.kind, access.title = ActivityKind.LINK, one.text
        self._now.effect(one)

    def _reset(self, event: Event, one: Transaction) -> None:
        self._now.begin(begun(one, ActivityKind.RESET, one.text))
        for (device, _), channel in self._accesses.channels.items():
            if device == event.device:
                channel.begin_chain()
                self._now.take(channel.given)
        bells = self._accesses.doorbells.get(event.device)
        if bells is not None:
            bells.reset()
            self._now.take(bells.given)


def _machine(one: Transaction) -> str:
    return one.device.partition(".")[0]


def _arrival(one: Transaction, event: Event) -> str:
    if event.what is What.MESSAGE:
        return f"interrupt message {event.data[::-1].hex()} to {_machine(one)}"
    return f"to {one.address:#x} of {_machine(one)}"
