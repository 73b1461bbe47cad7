"""Accesses of the registers and windows of bridges, and of the registers of DMA engines."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.ioat import registers as ioat
from bluebridge.device.layout.ntb.models import GEN1
from bluebridge.device.layout.ntb.switchtec import LinkMessage
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, begun
from bluebridge.host_tools.analyzer.activity.bridge_current import CurrentActivity
from bluebridge.host_tools.analyzer.activity.bridge_doorbells import Doorbells
from bluebridge.host_tools.analyzer.activity.bridge_registers import (
    FIRST_MESSAGE,
    Places,
    RegisterAccess,
    Use,
    bits_rung,
    register_access,
)
from bluebridge.host_tools.analyzer.activity.bridge_windows import WindowAccess
from bluebridge.host_tools.analyzer.activity.engine_channel import EngineChannel
from bluebridge.host_tools.analyzer.activity.lone import lone
from bluebridge.host_tools.analyzer.analysis.transaction import Role, Transaction
from bluebridge.host_tools.analyzer.bridges import family
from bluebridge.host_tools.analyzer.decode import decode


class BridgeAccesses:
    """Takes reads and writes of BARs; `doorbells` and `channels` are what they lead to later."""

    def __init__(self, devices: Sequence[str], now: CurrentActivity) -> None:
        """`devices`: the names in the log's meta file; more may be appended later."""
        self._devices = devices
        self._now = now
        self._peers: dict[str, str] = {}
        self.doorbells: dict[str, Doorbells] = {}
        self.channels: dict[tuple[str, int], EngineChannel] = {}
        self._scratchpads: dict[tuple[str, int], int] = {}
        self._places = Places()

    def _peer(self, device: str) -> str:
        """The function at the other end of the link."""
        found = self._peers.get(device)
        if found is None:
            machine, _, suffix = device.partition(".")
            others = (name.partition(".") for name in self._devices)
            found = next((m + "." + s for m, _, s in others if s == suffix and m != machine), "")
            self._peers[device] = found
        return found

    def bells(self, device: str) -> Doorbells:
        """The doorbells that the peer has rung on a function."""
        found = self.doorbells.get(device)
        if found is None:
            found = self.doorbells[device] = Doorbells(device)
        return found

    def write(self, event: Event, one: Transaction) -> None:
        """A write of a BAR."""
        mover = self._now.mover()
        if event.bar:
            self._store(event, one)
        else:
            kind = family(event.device)
            found = register_access(kind, event.address, event.data)
            if kind == ioat.LOG_SUFFIX:
                self._engine_register(event, one, found)
            else:
                self._bridge_register(event, one, found)
        for activity in (self._now.access, self._now.rung.activity if self._now.rung else None):
            if mover is not None and activity is not None:
                activity.cause = mover

    def _store(self, event: Event, one: Transaction) -> None:
        register = self._peers_register(event)
        if register is not None:
            self._register_store(one, register)
        elif self._now.window is not None and self._now.window.continues(one):
            self._now.window.go_on(one, [])
        else:
            self._now.close()
            self._now.window = WindowAccess(one, [])

    def _peers_register(self, event: Event) -> RegisterAccess | None:
        """The register of the peer that an access of a window meets: first generation only."""
        if family(event.device) != GEN1.log_suffix:
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
            self._now.close()
            self._now.window = WindowAccess(one, [], f"{found.words} of the peer")

    def read(self, event: Event, one: Transaction) -> None:
        """A read of a BAR."""
        if not event.bar:
            self._register_read(event, one)
            return
        answered, self._now.answered = self._now.answered, []
        if self._now.window is not None and self._now.window.continues(one):
            self._now.window.go_on(one, [each for _, each in answered])
            return
        self._now.close()
        found = None if answered else self._peers_register(event)
        words = f"{found.words} of the peer" if found is not None else ""
        self._now.window = WindowAccess(one, [each for _, each in answered], words)

    def _register_read(self, event: Event, one: Transaction) -> None:
        found = register_access(family(event.device), event.address, event.data)
        one.text = decode(event)
        self._now.close()
        if self._reacts(one, found, clears=False):
            return
        activity = lone(event, one)
        if found.use is Use.OWN_SCRATCHPAD:
            activity.cause = self._scratchpads.get((event.device, found.index))
        self._now.given.append(activity)

    def _reacts(self, one: Transaction, found: RegisterAccess, *, clears: bool) -> bool:
        """Whether an access of pending bits, or of a message, is listed with its doorbell."""
        if found.use is Use.PENDING:
            bits = found.value
        elif found.use is Use.INBOX and found.name.endswith("_status") == clears:
            bits = (found.value & 1 if clears else 1) << FIRST_MESSAGE + found.slot
        else:
            return False
        bells = self.bells(one.device)
        listed = bool(bits) and bells.reaction(one, bits, clears=clears)
        one.remote = listed
        self._now.take(bells.given)
        return listed

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
            self._now.close()
            if not self._reacts(one, found, clears=True):
                self._now.given.append(lone(event, one))
        else:
            if found.use is Use.VECTOR:
                for at, vector in enumerate(one.data):
                    self.bells(device).set_vector(found.index + at, vector)
            elif found.use is Use.PLACE:
                self._places.set(device, found)
            self._now.begin(begun(one, ActivityKind.ACCESS, one.text))
            self._now.unmasks = found.use is Use.MASK

    def _ring(self, one: Transaction, bits: int) -> None:
        self._now.close()
        names = ", ".join(str(bit) for bit in range(64) if bits >> bit & 1)
        plural = "s" if "," in names else ""
        peer = self._peer(one.device)
        title = f"doorbell{plural} {names} of {peer.partition('.')[0] or 'the peer'}"
        if not bits:
            self._now.begin(begun(one, ActivityKind.ACCESS, one.text))
            return
        one.text = title
        self._await(begun(one, ActivityKind.DOORBELL, title), peer, bits, None)

    def _await(self, activity: Activity, peer: str, bits: int, slot: int | None) -> None:
        bells = self.bells(peer)
        activity.transactions[0].role = Role.DOORBELL
        rung = bells.ring(activity, bits) if slot is None else bells.message(activity, slot)
        self._now.take(bells.given)
        self._now.rung = rung

    def _send(self, one: Transaction, found: RegisterAccess) -> None:
        self._now.close()
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
        self._now.begin(begun(one, ActivityKind.ACCESS, one.text))

    def channel(self, device: str, number: int) -> EngineChannel:
        """A channel of a DMA engine."""
        found = self.channels.get((device, number))
        if found is None:
            found = self.channels[device, number] = EngineChannel(number)
        return found

    def _engine_register(self, event: Event, one: Transaction, found: RegisterAccess) -> None:
        self._now.close()
        one.text = decode(event)
        channel = self.channel(one.device, found.index)
        if found.name == "dma_count":
            channel.ring(one, found.value)
            self._now.take(channel.given)
            return
        reset = found.name == "channel_command" and found.value & ioat.ChannelCommand.RESET
        if reset or found.name.startswith("chain_address"):
            channel.begin_chain()
            self._now.take(channel.given)
        activity = begun(one, ActivityKind.ACCESS, one.text)
        if found.name == "channel_control" and found.value & ioat.REARM:
            activity.title = f"re-arms the interrupt of channel {found.index}"
            activity.cause = channel.last
        self._now.begin(activity)
