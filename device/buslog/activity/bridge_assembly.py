"""Assembles the events of bridges and DMA engines into activities of both machines.

The server does one thing at a time, so what follows an access without a gap in the numbers of
events is its effect, until the next access; only interrupts and notes may also come by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.buslog.activity.activity import Activity, ActivityKind, begun
from bluebridge.device.buslog.activity.bridge_doorbells import PATIENCE_SECONDS, Doorbells, Rung
from bluebridge.device.buslog.activity.bridge_registers import (
    FIRST_MESSAGE,
    Places,
    RegisterAccess,
    Use,
    bits_rung,
    register_access,
)
from bluebridge.device.buslog.activity.bridge_windows import MOST_READS, WindowAccess
from bluebridge.device.buslog.activity.engine_channel import EngineChannel, Running
from bluebridge.device.buslog.activity.lone import lone
from bluebridge.device.buslog.activity.part import MAX_PARTS
from bluebridge.device.buslog.activity.resets import PAUSE_SECONDS
from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.bridges import family
from bluebridge.device.buslog.decode import decode
from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ioat import registers as ioat
from bluebridge.device.layout.ntb.models import BY_LOG_SUFFIX, GEN1
from bluebridge.device.layout.ntb.switchtec import LinkMessage

EXPIRE_EVERY = 256
LINK_NOTE = "link "
"""The beginning of the notes about the link between two bridges."""
LINK_UP = "link up"
ABORT_NOTE = "master abort"
_HALT = "channel {} halted"


class BridgeAssembler:
    """Takes the events of bridges and engines in order, each with its transaction."""

    def __init__(self, devices: Sequence[str]) -> None:
        """`devices`: the names in the log's meta file; more may be appended later."""
        self._devices = devices
        self._families: dict[str, str] = {}
        self._peers: dict[str, str] = {}
        self._doorbells: dict[str, Doorbells] = {}
        self._channels: dict[tuple[str, int], EngineChannel] = {}
        self._scratchpads: dict[tuple[str, int], int] = {}
        self._places = Places()
        self._given: list[Activity] = []
        self._last = -1
        self._expired = 0
        # What the next event can be an effect of, at most one of them.
        self._window: WindowAccess | None = None
        self._access: Activity | None = None
        self._config_place = 0  # of the last access, if they are of config space
        self._unmasks = False  # the access changes which doorbells interrupt
        self._rung: Rung | None = None
        self._engine: EngineChannel | None = None
        self._answered: list[tuple[Event, Transaction]] = []
        """Reads at the peer whose access follows."""

    def feed(self, event: Event, one: Transaction) -> list[Activity]:
        """The activities that are complete after `event`."""
        if event.number != self._last + 1:
            self._close()
        self._last = event.number
        _HANDLERS.get(event.kind, BridgeAssembler._alone)(self, event, one)
        if event.number - self._expired >= EXPIRE_EVERY:
            self._expired = event.number
            self._expire(event.time - PATIENCE_SECONDS)
        given, self._given = self._given, []
        return given

    def finish(self) -> list[Activity]:
        """All that are left."""
        self._close()
        for channel in self._channels.values():
            channel.finish()
            self._take(channel.given)
        for doorbells in self._doorbells.values():
            doorbells.finish()
            self._take(doorbells.given)
        given, self._given = self._given, []
        return given

    # -- what is under way --------------------------------------------------------------------

    def _take(self, given: list[Activity]) -> None:
        self._given += given
        given.clear()

    def _close(self) -> None:
        """Nothing more follows of what the last access caused."""
        if self._window is not None:
            self._given.append(self._window.finished())
            self._window = None
        if self._access is not None:
            self._given.append(self._access)
            self._access = None
        if self._engine is not None:
            self._engine.close_if_over()
            self._take(self._engine.given)
            self._engine = None
        if self._answered:
            self._given += [lone(*each) for each in self._answered]
            self._answered = []
        self._rung = None
        self._unmasks = False

    def _begin(self, activity: Activity) -> None:
        """An access whose effects may follow."""
        self._close()
        self._access = activity

    def _alone(self, event: Event, one: Transaction) -> None:
        self._close()
        self._given.append(lone(event, one))

    def _expire(self, before: float) -> None:
        for doorbells in self._doorbells.values():
            doorbells.expire(before)
            self._take(doorbells.given)

    def _effect(self, one: Transaction) -> bool:
        """List something with what caused it; whether there is a cause."""
        if self._window is not None:
            self._window.arrived(one)
        elif self._engine is not None and self._engine.running is not None:
            self._engine_effect(self._engine.running, one)
        elif self._rung is not None and len(self._rung.activity.transactions) < MAX_PARTS:
            self._remote(self._rung.activity, one)
            self._rung.activity.add(one, 0)
        elif self._access is not None and len(self._access.transactions) < MAX_PARTS:
            self._remote(self._access, one)
            config = self._access.kind is ActivityKind.CONFIG
            self._access.add(one, self._config_place if config else 0)
        else:
            return False
        return True

    @staticmethod
    def _remote(activity: Activity, one: Transaction) -> None:
        one.remote = one.device.partition(".")[0] != activity.device.partition(".")[0]

    def _engine_effect(self, running: Running, one: Transaction) -> None:
        activity = running.activity
        self._remote(activity, one)
        place = activity.add(one, running.last_write)
        if running.moving is not None and one.tlp is not Tlp.MEMORY_READ:
            running.moving.append(place)  # the write that caused it is logged behind it

    # -- accesses by guests -------------------------------------------------------------------

    def _family(self, device: str) -> str:
        found = self._families.get(device)
        if found is None:
            found = self._families[device] = family(device)
        return found

    def _peer(self, device: str) -> str:
        """The function at the other end of the link."""
        found = self._peers.get(device)
        if found is None:
            machine, _, suffix = device.partition(".")
            others = (name.partition(".") for name in self._devices)
            found = next((m + "." + s for m, _, s in others if s == suffix and m != machine), "")
            self._peers[device] = found
        return found

    def _bells(self, device: str) -> Doorbells:
        found = self._doorbells.get(device)
        if found is None:
            found = self._doorbells[device] = Doorbells(device)
        return found

    def _write(self, event: Event, one: Transaction) -> None:
        mover = self._mover()
        if event.bar:
            self._store(event, one)
        else:
            kind = self._family(event.device)
            found = register_access(kind, event.address, event.data)
            if kind == ioat.LOG_SUFFIX:
                self._engine_register(event, one, found)
            else:
                self._bridge_register(event, one, found)
        for activity in (self._access, self._rung.activity if self._rung else None):
            if mover is not None and activity is not None:
                activity.cause = mover

    def _mover(self) -> int | None:
        """The descriptor that writes to a register now."""
        running = self._engine.running if self._engine is not None else None
        return running.activity.number if running and running.moving is not None else None

    def _store(self, event: Event, one: Transaction) -> None:
        register = self._peers_register(event)
        if register is not None:
            self._register_store(one, register)
        elif self._window is not None and self._window.continues(one):
            self._window.go_on(one, [])
        else:
            self._close()
            self._window = WindowAccess(one, [])

    def _peers_register(self, event: Event) -> RegisterAccess | None:
        """The register of the peer that an access of a window meets: first generation only."""
        if self._family(event.device) != GEN1.log_suffix:
            return None
        offset = self._places.shown_register(event, self._peer(event.device))
        if offset is None:
            return None
        return register_access(GEN1.log_suffix, offset, event.data)

    def _register_store(self, one: Transaction, found: RegisterAccess) -> None:
        """A store through a window into a register of the peer."""
        if found.use is Use.PENDING:
            self._ring(one, found.value & 0xFFFF)
        elif found.use is Use.OWN_SCRATCHPAD:
            self._scratchpad(one, found)
        else:
            self._close()
            self._window = WindowAccess(one, [], f"{found.words} of the peer")

    def _read(self, event: Event, one: Transaction) -> None:
        if not event.bar:
            self._register_read(event, one)
            return
        answered, self._answered = self._answered, []
        if self._window is not None and self._window.continues(one):
            self._window.go_on(one, [each for _, each in answered])
            return
        self._close()
        found = None if answered else self._peers_register(event)
        words = f"{found.words} of the peer" if found is not None else ""
        self._window = WindowAccess(one, [each for _, each in answered], words)

    def _register_read(self, event: Event, one: Transaction) -> None:
        found = register_access(self._family(event.device), event.address, event.data)
        one.text = decode(event)
        self._close()
        if self._reacts(one, found, clears=False):
            return
        activity = lone(event, one)
        if found.use is Use.OWN_SCRATCHPAD:
            activity.cause = self._scratchpads.get((event.device, found.index))
        self._given.append(activity)

    def _reacts(self, one: Transaction, found: RegisterAccess, *, clears: bool) -> bool:
        """Whether an access of pending bits, or of a message, is listed with its doorbell."""
        if found.use is Use.PENDING:
            bits = found.value
        elif found.use is Use.INBOX and found.name.endswith("_status") == clears:
            bits = (found.value & 1 if clears else 1) << FIRST_MESSAGE + found.slot
        else:
            return False
        bells = self._bells(one.device)
        listed = bool(bits) and bells.reaction(one, bits, clears=clears)
        one.remote = listed
        self._take(bells.given)
        return listed

    # -- registers of bridges -----------------------------------------------------------------

    def _bridge_register(self, event: Event, one: Transaction, found: RegisterAccess) -> None:
        device = one.device
        one.text = decode(event)
        if found.use is Use.RING:
            self._ring(one, bits_rung(found))
        elif found.use is Use.SEND:
            self._send(one, found)
        elif found.use is Use.PEER_SCRATCHPAD:
            self._scratchpad(one, found)
        elif found.use in (Use.PENDING, Use.INBOX):
            self._close()
            if not self._reacts(one, found, clears=True):
                self._given.append(lone(event, one))
        else:
            if found.use is Use.VECTOR:
                for at, vector in enumerate(one.data):
                    self._bells(device).set_vector(found.index + at, vector)
            elif found.use is Use.PLACE:
                self._places.set(device, found)
            self._begin(begun(one, ActivityKind.ACCESS, one.text))
            self._unmasks = found.use is Use.MASK

    def _ring(self, one: Transaction, bits: int) -> None:
        self._close()
        names = ", ".join(str(bit) for bit in range(64) if bits >> bit & 1)
        plural = "s" if "," in names else ""
        peer = self._peer(one.device)
        title = f"doorbell{plural} {names} of {peer.partition('.')[0] or 'the peer'}"
        if not bits:
            self._begin(begun(one, ActivityKind.ACCESS, one.text))
            return
        one.text = title
        self._await(begun(one, ActivityKind.DOORBELL, title), peer, bits, None)

    def _await(self, activity: Activity, peer: str, bits: int, slot: int | None) -> None:
        bells = self._bells(peer)
        activity.transactions[0].role = Role.DOORBELL
        rung = bells.ring(activity, bits) if slot is None else bells.message(activity, slot)
        self._take(bells.given)
        self._rung = rung

    def _send(self, one: Transaction, found: RegisterAccess) -> None:
        self._close()
        peer, slot, value = self._peer(one.device), found.slot, found.value
        words = LinkMessage(value).name if value in tuple(LinkMessage) else hex(value)
        title = f"message {slot} to {peer.partition('.')[0] or 'the peer'}: {words}"
        one.text = title
        self._await(begun(one, ActivityKind.DOORBELL, title), peer, 0, slot)

    def _scratchpad(self, one: Transaction, found: RegisterAccess) -> None:
        peer = self._peer(one.device)
        machine = peer.partition(".")[0] or "the peer"
        one.text = f"scratchpad {found.index} of {machine} = {found.value:#x}"
        self._scratchpads[peer, found.index] = one.number
        self._begin(begun(one, ActivityKind.ACCESS, one.text))

    # -- the DMA engine -----------------------------------------------------------------------

    def _channel(self, device: str, number: int) -> EngineChannel:
        found = self._channels.get((device, number))
        if found is None:
            found = self._channels[device, number] = EngineChannel(number)
        return found

    def _enter(self, device: str, number: int) -> EngineChannel:
        """What follows are effects of this channel."""
        channel = self._channel(device, number)
        if self._engine is not channel:
            self._close()
            self._engine = channel
        return channel

    def _engine_register(self, event: Event, one: Transaction, found: RegisterAccess) -> None:
        self._close()
        one.text = decode(event)
        channel = self._channel(one.device, found.index)
        if found.name == "dma_count":
            channel.ring(one, found.value)
            self._take(channel.given)
            return
        reset = found.name == "channel_command" and found.value & ioat.ChannelCommand.RESET
        if reset or found.name.startswith("chain_address"):
            channel.begin_chain()
            self._take(channel.given)
        activity = begun(one, ActivityKind.ACCESS, one.text)
        if found.name == "channel_control" and found.value & ioat.REARM:
            activity.title = f"re-arms the interrupt of channel {found.index}"
            activity.cause = channel.last
        self._begin(activity)

    def _dma_read(self, event: Event, one: Transaction) -> None:
        what = event.what
        if what is What.DESCRIPTOR:
            self._enter(event.device, event.obj).fetched(one)
        elif what is What.COPY:
            self._enter(event.device, event.obj).copied(one)
        elif what is What.WINDOW:
            self._window_read(event, one)
        else:
            self._alone(event, one)
        self._take_engine()

    def _take_engine(self) -> None:
        if self._engine is not None:
            self._take(self._engine.given)

    def _window_read(self, event: Event, one: Transaction) -> None:
        """The peer's memory is read: by the engine, or by an access that is logged next."""
        running = self._engine.running if self._engine is not None else None
        one.text = f"of {one.address:#x} of {_machine(one)}"
        if running is not None and running.moving is not None:
            self._engine_effect(running, one)
            return
        if self._window is None or self._window.writes:
            answered, self._answered = self._answered, []
            self._close()
            self._answered = answered
        self._answered.append((event, one))
        if len(self._answered) > MOST_READS:
            self._close()

    def _dma_write(self, event: Event, one: Transaction) -> None:
        what = event.what
        if what is What.COPY:
            self._enter(event.device, event.obj).copied(one)
        elif what is What.COMPLETION:
            self._enter(event.device, event.obj).completed(one)
        elif what in (What.WINDOW, What.MESSAGE):
            one.text = _arrival(one, event)
            if not self._effect(one):
                self._alone(event, one)
        else:
            self._alone(event, one)
        self._take_engine()

    # -- interrupts, notes, resets ------------------------------------------------------------

    def _interrupt(self, event: Event, one: Transaction) -> None:
        one.text = f"interrupt, vector {event.address}"
        if self._family(event.device) == ioat.LOG_SUFFIX:
            expected = self._access is not None or self._engine is not None
            if not (expected and self._effect(one)):
                self._alone(event, one)
        elif not self._bell(one) and not (self._changes_link() and self._effect(one)):
            self._alone(event, one)

    def _changes_link(self) -> bool:
        """Whether what happens now has changed the link, which interrupts on both sides."""
        access = self._access
        return access is not None and access.kind in (ActivityKind.LINK, ActivityKind.RESET)

    def _bell(self, one: Transaction) -> bool:
        """Whether an interrupt of a bridge announces a doorbell or a message."""
        bells = self._bells(one.device)
        bits = bells.bits_of(one.address)
        rung = self._rung
        if rung is not None and rung.bits & bits:
            one.remote = True
            rung.interrupt(one, bits, 0)
            return True
        waiting = None if self._changes_link() else bells.waiting(bits)
        if waiting is None:
            return False
        cause = 0
        access = self._access
        if access is not None and self._unmasks and access.device == one.device:
            # The guest unmasks the doorbell: that access is a part of it.
            cause = waiting.activity.add(access.transactions[0], 0)
            access.transactions[0].remote = True
            for effect in access.transactions[1:]:
                waiting.activity.add(effect, cause)
            self._access = None
        else:
            self._close()
        one.remote = True
        waiting.interrupt(one, bits, cause)
        self._rung = waiting
        return True

    def _note(self, event: Event, one: Transaction) -> None:
        if event.text.startswith(LINK_NOTE) and self._family(event.device) in BY_LOG_SUFFIX:
            self._link(one)
            return
        halted = _HALT.format(event.text.split(" ")[1]) if " " in event.text else ""
        if halted and event.text.startswith(halted):
            self._halt(event, one)
        elif self._effect(one):
            self._problem(event)
        else:
            self._alone(event, one)

    def _halt(self, event: Event, one: Transaction) -> None:
        number = event.text.split(" ")[1]
        self._enter(event.device, int(number) if number.isdigit() else 0).halted(one)
        self._take_engine()

    def _problem(self, event: Event) -> None:
        """A note that says why something did not work is the status of what caused it."""
        if not event.text.startswith((ABORT_NOTE, "interrupt ", "an interrupt message")):
            return
        activity = self._window.activity if self._window is not None else None
        if activity is None and self._rung is not None:
            activity = self._rung.activity
        if activity is not None and not activity.status:
            activity.status = event.text

    def _link(self, one: Transaction) -> None:
        """The link went down by an access or a reset, or came up by itself after training."""
        access = self._access
        by_itself = one.text == LINK_UP and not self._changes_link()
        if access is None or by_itself or access.kind is ActivityKind.CONFIG:
            self._begin(begun(one, ActivityKind.LINK, one.text))
            return
        if access.kind is ActivityKind.ACCESS:
            access.kind, access.title = ActivityKind.LINK, one.text
        self._effect(one)

    def _reset(self, event: Event, one: Transaction) -> None:
        self._begin(begun(one, ActivityKind.RESET, one.text))
        for (device, _), channel in self._channels.items():
            if device == event.device:
                channel.begin_chain()
                self._take(channel.given)
        bells = self._doorbells.get(event.device)
        if bells is not None:
            bells.reset()
            self._take(bells.given)

    def _config(self, event: Event, one: Transaction) -> None:
        """Config space; accesses in a row are one activity, as those of HCAs are."""
        run = self._access
        if (
            run is not None
            and run.kind is ActivityKind.CONFIG
            and run.device == event.device
            and one.time - run.end < PAUSE_SECONDS
            and len(run.transactions) < MAX_PARTS
        ):
            one.text = decode(event)
            self._config_place = run.add(one)
            return
        self._begin(lone(event, one))
        self._config_place = 0


def _machine(one: Transaction) -> str:
    return one.device.partition(".")[0]


def _arrival(one: Transaction, event: Event) -> str:
    if event.what is What.MESSAGE:
        return f"interrupt message {event.data[::-1].hex()} to {_machine(one)}"
    return f"to {one.address:#x} of {_machine(one)}"


Handler = Callable[[BridgeAssembler, Event, Transaction], None]
_HANDLERS: dict[Kind, Handler] = {
    Kind.MMIO_WRITE: BridgeAssembler._write,
    Kind.MMIO_READ: BridgeAssembler._read,
    Kind.DMA_READ: BridgeAssembler._dma_read,
    Kind.DMA_WRITE: BridgeAssembler._dma_write,
    Kind.IRQ: BridgeAssembler._interrupt,
    Kind.NOTE: BridgeAssembler._note,
    Kind.RESET: BridgeAssembler._reset,
    Kind.CONFIG_READ: BridgeAssembler._config,
    Kind.CONFIG_WRITE: BridgeAssembler._config,
}
