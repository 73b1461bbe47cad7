"""Accesses of the registers and windows of bridges, and of the registers of DMA engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.ntb.uses import RegisterUse, Use, Uses
from bluebridge.host_tools.analyzer.activity.activity import (
    Activity,
    ActivityKind,
    Subject,
    begun,
    lone,
)
from bluebridge.host_tools.analyzer.activity.bridge_effects import (
    Access,
    Cause,
    Doorbells,
    WindowAccess,
)
from bluebridge.host_tools.analyzer.activity.engine_channel import EngineChannel
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Role, Transaction

_NO_USES = Uses({})
_OTHER = RegisterUse(Use.OTHER)


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """An access of a register: `value` at the places of its bits, `words` its block and name."""

    by: RegisterUse
    words: str
    index: int
    name: str
    value: int

    @property
    def use(self) -> Use:
        """The use of the register."""
        return self.by.use


_NOTHING = RegisterAccess(_OTHER, "", 0, "", 0)


def uses_of(device: str) -> Uses:
    """Return the uses of a bridge's registers; for other devices there are none."""
    return model_of(device).uses or _NO_USES


def register_access(device: str, address: int, data: bytes) -> RegisterAccess:
    """Return the register at offset `address` of BAR0 that an access of `data` meets."""
    found = model_of(device).find(0, address)
    if found is None:
        return _NOTHING
    block, index, register = found
    value = int.from_bytes(data, "little") << 8 * (address - block.at(register.name, index))
    value &= (1 << register.width) - 1
    by = uses_of(device).registers.get((block.name, register.name), _OTHER)
    return RegisterAccess(by, f"{block.name}.{register.name}", index, register.name, value)


class BridgeAccesses:
    """Takes reads and writes of BARs; returns the causes of later events."""

    def __init__(self, devices: Sequence[str], given: list[Activity]) -> None:
        """`devices` are the names in the log's meta file; more may be appended later."""
        self._devices = devices
        self._given = given
        self._peers: dict[str, str] = {}
        self.doorbells: dict[str, Doorbells] = {}
        self.channels: dict[tuple[str, int], EngineChannel] = {}
        self._scratchpads: dict[tuple[str, int], int] = {}
        # Addresses on the bus between two bridges, if the model has one.
        self._bars: dict[tuple[str, int], int] = {}
        self._registers: dict[str, int] = {}

    def _peer(self, device: str) -> str:
        """Return the function at the other end of the link, empty if there is none."""
        found = self._peers.get(device)
        if found is None:
            machine, _, suffix = device.partition(".")
            others = (name.partition(".") for name in self._devices)
            found = next((m + "." + s for m, _, s in others if s == suffix and m != machine), "")
            self._peers[device] = found
        return found

    def _peers_machine(self, device: str) -> str:
        return host_of(self._peer(device)) or "the peer"

    def bells(self, device: str) -> Doorbells:
        """Return the doorbells of a function, which its peer rings."""
        if device not in self.doorbells:
            self.doorbells[device] = Doorbells(uses_of(device), self._given)
        return self.doorbells[device]

    def channel(self, device: str, number: int) -> EngineChannel:
        """Return channel `number` of a DMA engine."""
        if (device, number) not in self.channels:
            self.channels[device, number] = EngineChannel(number, self._given)
        return self.channels[device, number]

    def shown(self, event: Event) -> RegisterAccess | None:
        """Return the peer's register that an access of a window meets, None if there is none."""
        peer = self._peer(event.device)
        address = self._bars.get((event.device, event.bar), 0) + event.address
        offset = address - self._registers.get(peer, 0)
        if not 0 <= offset < uses_of(peer).registers_shown:
            return None
        return register_access(peer, offset, event.data)

    def store(self, one: Transaction, met: RegisterAccess | None) -> Cause:
        """Take a store into a window; `met` is the register of the peer that it meets, or None."""
        if met is None:
            return WindowAccess(one, [])
        if met.use is Use.PENDING:
            return self._ring(one, met.value)
        if met.use is Use.OWN_SCRATCHPAD:
            return self._scratchpad(one, met)
        return WindowAccess(one, [], f"{met.words} of the peer")

    def load(self, event: Event, one: Transaction, arrivals: list[Transaction]) -> Cause:
        """Take a load from a window; `arrivals` are the reads at the peer that answered it."""
        met = None if arrivals else self.shown(event)
        return WindowAccess(one, arrivals, "" if met is None else f"{met.words} of the peer")

    def read(self, event: Event, one: Transaction) -> None:
        """Take a read of a register, which is an activity or belongs to a doorbell."""
        found = register_access(event.device, event.address, event.data)
        one.text = decode(event)
        if self._reacts(one, found, clears=False):
            return
        activity = lone(event, one)
        if found.use is Use.OWN_SCRATCHPAD:
            activity.cause = self._scratchpads.get((event.device, found.index))
        self._given.append(activity)

    def write(self, event: Event, one: Transaction) -> Cause | None:
        """Take a write of a register; return the cause of what may follow, or None."""
        found = register_access(event.device, event.address, event.data)
        one.text = decode(event)
        if model_of(event.device).kind is DeviceKind.ENGINE:
            activity = self.channel(one.device, found.index).write(one, found.name, found.value)
            return None if activity is None else Access(activity)
        use = found.use
        if use is Use.RING:
            by = found.by
            return self._ring(one, (found.value & by.bits) << (found.index if by.bit_each else 0))
        if use is Use.SEND:
            slot, device = found.by.number, one.device
            words = uses_of(device).message_names.get(found.value, hex(found.value))
            one.text = f"message {slot} to {self._peers_machine(device)}: {words}"
            return self.bells(self._peer(device)).message(_doorbell(one), slot)
        if use is Use.PEER_SCRATCHPAD:
            return self._scratchpad(one, found)
        if use in (Use.PENDING, Use.INBOX, Use.INBOX_STATUS):
            if not self._reacts(one, found, clears=True):
                self._given.append(lone(event, one))
            return None
        if use is Use.VECTOR:
            for at, vector in enumerate(one.data):
                self.bells(one.device).vectors[found.index + at] = vector
        elif use is Use.BAR_BASE:
            self._bars[one.device, found.by.number] = found.value
        elif use is Use.SHOWN_AT:
            self._registers[one.device] = found.value & ~0xF
        return _access(one, unmasks=use is Use.MASK)

    def _reacts(self, one: Transaction, found: RegisterAccess, *, clears: bool) -> bool:
        """List an access of pending bits or a message with its doorbell; return whether it is."""
        bells = self.bells(one.device)
        if found.use is Use.PENDING:
            bits = found.value
        elif found.use is (Use.INBOX_STATUS if clears else Use.INBOX):
            bits = bells.message_bit(found.by.number) if not clears or found.value & 1 else 0
        else:
            return False
        one.remote = bool(bits) and bells.reaction(one, bits, clears=clears)
        return one.remote

    def _ring(self, one: Transaction, bits: int) -> Cause:
        if not bits:
            return _access(one)
        names = ", ".join(str(bit) for bit in range(64) if bits >> bit & 1)
        plural = "s" if "," in names else ""
        one.text = f"doorbell{plural} {names} of {self._peers_machine(one.device)}"
        return self.bells(self._peer(one.device)).ring(_doorbell(one), bits)

    def _scratchpad(self, one: Transaction, found: RegisterAccess) -> Cause:
        machine = self._peers_machine(one.device)
        one.text = f"scratchpad {found.index} of {machine} = {found.value:#x}"
        self._scratchpads[self._peer(one.device), found.index] = one.number
        access = _access(one)
        access.activity.subject = Subject("scratchpad", found.index)
        return access


def _access(one: Transaction, *, unmasks: bool = False) -> Access:
    return Access(begun(one, ActivityKind.ACCESS, one.text), unmasks=unmasks)


def _doorbell(one: Transaction) -> Activity:
    one.role = Role.DOORBELL
    return begun(one, ActivityKind.DOORBELL, one.text)
