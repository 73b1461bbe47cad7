"""Assembles the events of bridges and DMA engines into activities of both machines.

The server does one thing at a time, so what follows an access without a gap in the numbers of
events is its effect, until the next access; only interrupts and notes may also come by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.analyzer.activity import bridge_effects as effects
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, begun, lone
from bluebridge.host_tools.analyzer.activity.bridge_accesses import BridgeAccesses
from bluebridge.host_tools.analyzer.activity.engine_channel import EngineChannel
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Transaction

EXPIRE_EVERY = 256
_PROBLEMS = (Fact.MASTER_ABORT, Fact.INTERRUPT_LOST, Fact.MESSAGE_LOST)
_ENGINE_STEPS = {
    What.DESCRIPTOR: EngineChannel.fetched,
    What.COPY: EngineChannel.copied,
    What.COMPLETION: EngineChannel.completed,
}
_NOTHING: list[Activity] = []


class BridgeAssembler:
    """Assembles the events of bridges and engines, taken in order with their transactions."""

    def __init__(self, devices: Sequence[str]) -> None:
        """`devices` are the names in the log's meta file; more may be appended later."""
        self._given: list[Activity] = []
        self._accesses = BridgeAccesses(devices, self._given)
        self._cause: effects.Cause | None = None
        self._answered: list[tuple[Event, Transaction]] = []
        """Reads at the peer that belong to an access which follows in the log."""
        self._last = -1
        self._expired = 0
        self._handlers: dict[Kind, Callable[[Event, Transaction], None]] = {
            Kind.MMIO_WRITE: self._write,
            Kind.MMIO_READ: self._read,
            Kind.DMA_READ: self._dma,
            Kind.DMA_WRITE: self._dma,
            Kind.IRQ: self._interrupt,
            Kind.NOTE: self._note,
            Kind.RESET: self._reset,
            Kind.CONFIG_READ: self._config,
            Kind.CONFIG_WRITE: self._config,
        }

    def feed(self, event: Event, one: Transaction) -> list[Activity]:
        """Take the next event and return the activities that are complete by it."""
        if event.number != self._last + 1:
            self._end()
        self._last = event.number
        self._handlers.get(event.kind, self._alone)(event, one)
        if event.number - self._expired >= EXPIRE_EVERY:
            self._expired = event.number
            for doorbells in self._accesses.doorbells.values():
                doorbells.expire(event.time - effects.PATIENCE_SECONDS)
        return self._taken()

    def finish(self) -> list[Activity]:
        """Return the activities that still wait for more events at the end of the log."""
        self._end()
        for channel in self._accesses.channels.values():
            channel.finish()
        for doorbells in self._accesses.doorbells.values():
            doorbells.finish()
        return self._taken()

    def _taken(self) -> list[Activity]:
        if not self._given:
            return _NOTHING
        given = self._given.copy()
        self._given.clear()
        return given

    # -- what is under way ----------------------------------------------------------------------

    def _end(self) -> None:
        cause, self._cause = self._cause, None
        done = None if cause is None else cause.end()
        if done is not None:
            self._given.append(done)
        if self._answered:
            self._given += [lone(*each) for each in self._answered]
            self._answered = []

    def _begin(self, cause: effects.Cause | None) -> None:
        self._end()
        self._cause = cause

    def _alone(self, event: Event, one: Transaction) -> None:
        self._end()
        self._given.append(lone(event, one))

    def _effect(self, event: Event, one: Transaction) -> bool:
        """List an event with its cause, else alone; return whether there is a cause."""
        if self._cause is not None and self._cause.effect(one):
            return True
        self._alone(event, one)
        return False

    @property
    def _access(self) -> effects.Access | None:
        return self._cause if isinstance(self._cause, effects.Access) else None

    @property
    def _changes_link(self) -> bool:
        """Whether the access has changed the link, which interrupts on both sides."""
        kinds = ActivityKind.LINK, ActivityKind.RESET
        return self._access is not None and self._access.activity.kind in kinds

    # -- accesses of the host -------------------------------------------------------------------

    def _write(self, event: Event, one: Transaction) -> None:
        mover = self._cause.mover if isinstance(self._cause, EngineChannel) else None
        if event.bar:
            met = self._accesses.shown(event)
            if met is None and self._goes_on(one, []):
                return
            self._end()
            self._cause = self._accesses.store(one, met)
        else:
            self._end()
            self._cause = self._accesses.write(event, one)
        if mover is not None and isinstance(self._cause, effects.Access | effects.Rung):
            self._cause.activity.cause = mover

    def _read(self, event: Event, one: Transaction) -> None:
        if not event.bar:
            self._end()
            self._accesses.read(event, one)
            return
        arrivals = [each for _, each in self._answered]
        self._answered = []
        if not self._goes_on(one, arrivals):
            self._begin(self._accesses.load(event, one, arrivals))

    def _goes_on(self, one: Transaction, arrivals: list[Transaction]) -> bool:
        """Add an access of a window to the run before if it continues it, else return False."""
        if not isinstance(self._cause, effects.WindowAccess) or not self._cause.continues(one):
            return False
        self._cause.go_on(one, arrivals)
        return True

    def _config(self, event: Event, one: Transaction) -> None:
        run = self._access
        if run is not None and run.continues(one):
            one.text = decode(event)
            run.go_on(one)
        else:
            self._begin(effects.Access(lone(event, one)))

    def _reset(self, event: Event, one: Transaction) -> None:
        self._begin(effects.Access(begun(one, ActivityKind.RESET, one.text)))
        for (device, _), channel in self._accesses.channels.items():
            if device == event.device:
                channel.begin_chain()
        if event.device in self._accesses.doorbells:
            self._accesses.doorbells[event.device].reset()

    # -- what the devices do --------------------------------------------------------------------

    def _enter(self, device: str, number: int) -> EngineChannel:
        """Return a channel of a DMA engine and make it the cause of what follows."""
        channel = self._accesses.channel(device, number)
        if self._cause is not channel:
            self._begin(channel)
        return channel

    def _dma(self, event: Event, one: Transaction) -> None:
        what = event.what
        step = _ENGINE_STEPS.get(what)
        if step is not None:
            step(self._enter(event.device, event.obj), one)
        elif what is What.WINDOW and event.kind is Kind.DMA_READ:
            self._window_read(event, one)
        elif what is What.WINDOW:
            one.text = f"to {one.address:#x} of {host_of(one.device)}"
            self._effect(event, one)
        elif what is What.MESSAGE:
            one.text = f"interrupt message {event.data[::-1].hex()} to {host_of(one.device)}"
            self._effect(event, one)
        else:
            self._alone(event, one)

    def _window_read(self, event: Event, one: Transaction) -> None:
        """Take a read at the peer, by the engine or by an access that is logged next."""
        one.text = f"of {one.address:#x} of {host_of(one.device)}"
        cause = self._cause
        if isinstance(cause, EngineChannel) and cause.mover is not None:
            cause.effect(one)
            return
        if not isinstance(cause, effects.WindowAccess) or cause.writes:
            answered, self._answered = self._answered, []
            self._end()
            self._answered = answered
        self._answered.append((event, one))
        if len(self._answered) > effects.MOST_READS:
            self._end()

    def _interrupt(self, event: Event, one: Transaction) -> None:
        one.text = f"interrupt, vector {event.address}"
        if model_of(event.device).kind is DeviceKind.ENGINE:
            expected = isinstance(self._cause, effects.Access | EngineChannel)
        elif self._bell(one):
            return
        else:
            expected = self._changes_link
        if expected:
            self._effect(event, one)
        else:
            self._alone(event, one)

    def _bell(self, one: Transaction) -> bool:
        """Return whether an interrupt of a bridge announces a doorbell or a message."""
        bells = self._accesses.bells(one.device)
        bits = bells.bits_of(one.address)
        rung, place = self._cause, 0
        if not isinstance(rung, effects.Rung) or not rung.bits & bits:
            rung = None if self._changes_link else bells.waiting(bits)
            if rung is None:
                return False
            access = self._access
            if access is not None and access.unmasks and access.activity.device == one.device:
                place = rung.unmasked(access.activity)
                self._cause = None
            self._begin(rung)
        one.remote = True
        rung.interrupt(one, bits, place)
        return True

    def _note(self, event: Event, one: Transaction) -> None:
        if event.fact is Fact.BRIDGE_LINK:
            self._link(event, one)
        elif event.fact is Fact.CHANNEL_HALTED:
            self._enter(event.device, event.values["channel"]).halted(one)
        elif self._effect(event, one) and event.fact in _PROBLEMS:
            # It says why something did not work: the status of what caused it.
            cause = self._cause
            if isinstance(cause, effects.WindowAccess | effects.Rung) and not cause.activity.status:
                cause.activity.status = one.text

    def _link(self, event: Event, one: Transaction) -> None:
        access = self._access
        by_itself = event.values["link"] and not self._changes_link
        if access is None or by_itself or access.activity.kind is ActivityKind.CONFIG:
            self._begin(effects.Access(begun(one, ActivityKind.LINK, one.text)))
            return
        if access.activity.kind is ActivityKind.ACCESS:
            access.activity.kind, access.activity.title = ActivityKind.LINK, one.text
        self._effect(event, one)
