"""Descriptors of one channel of a DMA engine, and the register writes that led to them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout import ioat
from bluebridge.device.layout.ioat import DESCRIPTOR, DESCRIPTOR_SIZE, State
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, begun
from bluebridge.host_tools.analyzer.activity.bridge_effects import Cause, mark_remote
from bluebridge.host_tools.analyzer.transaction import OK, Role, Tlp, Transaction

COUNT_BITS = 0xFFFF
MOST_RINGS = 64
"""Writes of the count that wait at most for their descriptors."""
MOST_PARTS = 1024
"""Transactions of one activity at most: a copy into registers has two for each 8 bytes."""


@dataclass(slots=True, eq=False)
class Ring:
    """A write of the count, by which software wants descriptors up to `wanted` executed."""

    activity: Activity
    wanted: int
    begun: bool = False


@dataclass(slots=True, eq=False)
class Running:
    """A descriptor under way; `left` are its bytes to go, None if the log does not say."""

    activity: Activity
    last_read: int | None  # places of transactions; None for one that the log does not have
    left: int | None
    moving: list[int] | None = None  # between read and write: what the write caused
    done: bool = False
    entry: int | None = field(init=False)
    last_write: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.entry = self.last_write = self.last_read

    @property
    def over(self) -> bool:
        """Whether only a completion word and an interrupt can follow."""
        return self.done or self.left == 0


class EngineChannel(Cause):
    """Assembles the transactions of one channel; complete activities are added to `given`."""

    def __init__(self, number: int, given: list[Activity]) -> None:
        self._number = number
        self._fetched: int | None = None  # since the chain's address was written
        self._rings: deque[Ring] = deque()
        self.running: Running | None = None
        self.last: int | None = None
        """Number of the activity of the last descriptor."""
        self._given = given

    def write(self, one: Transaction, name: str, value: int) -> Activity | None:
        """Take a write of a register: an activity of its own, unless it writes the count."""
        if name == "dma_count":
            self._ring(one, value)
            return None
        reset = name == "channel_command" and value & ioat.ChannelCommand.RESET
        if reset or name.startswith("chain_address"):
            self.begin_chain()
        activity = begun(one, ActivityKind.ACCESS, one.text)
        if name == "channel_control" and value & ioat.REARM:
            activity.title = f"re-arms the interrupt of channel {self._number}"
            activity.cause = self.last
        return activity

    @property
    def mover(self) -> int | None:
        """Number of the descriptor that is writing, to a register or to memory; None if none is."""
        running = self.running
        return None if running is None or running.moving is None else running.activity.number

    def effect(self, one: Transaction) -> bool:
        """List a transaction with the descriptor that caused it."""
        running = self.running
        if running is None:
            return False
        mark_remote(running.activity, one)
        place = running.activity.add(one, running.last_write)
        if running.moving is not None and one.tlp is not Tlp.MEMORY_READ:
            running.moving.append(place)  # the write that caused it is logged behind it
        return True

    def end(self) -> None:
        """Complete the descriptor under way if nothing more of it can follow."""
        if self.running is not None and self.running.over:
            self.close()

    def _ring(self, one: Transaction, wanted: int) -> None:
        title = f"descriptors up to {wanted} of channel {self._number}"
        activity = begun(one, ActivityKind.ACCESS, title)
        activity.transactions[0].role = Role.DOORBELL
        activity.transactions[0].text = f"channel {self._number}, descriptors up to {wanted}"
        wanted &= COUNT_BITS
        if wanted in (self._fetched, self._rings[-1].wanted if self._rings else None):
            self._given.append(activity)  # all of them were asked for before
            return
        if self._fetched is not None:
            while self._rings and self._ahead(self._rings[-1].wanted) > self._ahead(wanted):
                self._release(self._rings.pop())
        self._rings.append(Ring(activity, wanted))
        if len(self._rings) > MOST_RINGS:
            self._release(self._rings.popleft())

    def _ahead(self, wanted: int) -> int:
        """Return the number of descriptors from the last one fetched to that of this count."""
        return (wanted - (self._fetched or 0)) & COUNT_BITS

    def begin_chain(self) -> None:
        """Count descriptors anew: software wrote the chain's address, or reset the channel."""
        self._fetched = 0
        self.finish()

    def fetched(self, one: Transaction) -> None:
        """Begin the descriptor that the engine fetched."""
        self.close()
        activity, parent = self._next_activity(one)
        size = None
        one.text = f"descriptor of channel {self._number}"
        if len(one.data) >= DESCRIPTOR_SIZE // 2:
            null = DESCRIPTOR.get(one.data, "null")
            source, target, size = (
                DESCRIPTOR.get(one.data, name) for name in ("source", "destination", "size")
            )
            activity.title = f"copy {size} bytes {source:#x} > {target:#x}"
            if null:
                size, activity.title = 0, "null descriptor"
        activity.title += f", channel {self._number}"
        self.running = Running(activity, activity.add(one, parent), size)
        self.last = activity.number

    def _next_activity(self, one: Transaction) -> tuple[Activity, int | None]:
        """Return the activity for the next descriptor, and the place of its cause there."""
        ring = self._ring_of_next()
        if ring is not None and not ring.begun:
            ring.begun = True
            activity = ring.activity
            activity.kind, activity.title = ActivityKind.DESCRIPTOR, "descriptor"
            return activity, 0
        cause = None if ring is None else ring.activity.number
        return _descriptor(one, "descriptor", cause), None

    def _ring_of_next(self) -> Ring | None:
        """Return the write of the count that asked for the next descriptor."""
        if self._fetched is None:
            while len(self._rings) > 1:
                self._release(self._rings.popleft())
            return self._rings[0] if self._rings else None
        self._fetched = number = (self._fetched + 1) & COUNT_BITS
        ring = self._rings[0] if self._rings else None
        if ring is not None and ring.wanted == number:
            self._rings.popleft()
        return ring

    def copied(self, one: Transaction) -> None:
        """List a read or a write of the copy under way."""
        running = self.running or self._without_entry(one)
        if len(running.activity.transactions) >= MOST_PARTS:
            self._given.append(running.activity)
            running = self._without_entry(one, running)
        if one.tlp is Tlp.MEMORY_READ:
            one.text = f"copy from {one.address:#x}"
            running.last_read = running.last_write = running.activity.add(one, running.entry)
            running.moving = []
            return
        one.text = f"copy to {one.address:#x}"
        running.last_write = running.activity.add(one, running.last_read)
        for place in running.moving or ():
            running.activity.transactions[place].parent = running.last_write
        running.moving = None
        if running.left is not None:
            running.left = max(0, running.left - one.length)

    def _without_entry(self, one: Transaction, before: Running | None = None) -> Running:
        """Continue with a descriptor whose fetch is not in the log or in an earlier activity."""
        if before is None:
            activity = _descriptor(one, f"descriptor, channel {self._number}", None)
        else:
            title = f"{before.activity.title}, continued"
            activity = _descriptor(one, title, before.activity.number)
        self.running = Running(activity, None, None if before is None else before.left)
        self.last = activity.number
        return self.running

    def completed(self, one: Transaction) -> None:
        """List the write of the completion word."""
        running = self.running or self._without_entry(one)
        state = one.data[0] & 7 if one.data else State.ACTIVE
        known = State(state).name if state in tuple(State) else hex(state)
        one.text = f"completion word, {known}"
        running.last_write = running.activity.add(one, running.last_write)
        running.done = True
        if state == State.IDLE and self._fetched is None and self._rings:
            self._fetched = self._rings[-1].wanted
            self._release_all()

    def halted(self, one: Transaction) -> None:
        """List the note that the channel has stopped with an error."""
        running = self.running
        if running is None:
            activity, parent = self._next_activity(one)
            activity.title = f"descriptor that cannot be fetched, channel {self._number}"
            running = self.running = Running(activity, activity.add(one, parent), 0)
        else:
            running.last_write = running.activity.add(one, running.last_write)
        running.activity.status = one.text
        running.done, running.moving = True, None
        self.last = running.activity.number

    def close(self) -> None:
        """Complete the descriptor under way."""
        running, self.running = self.running, None
        if running is not None:
            if running.over and not running.activity.status:
                running.activity.status = OK
            running.activity.title += _through_windows(running.activity)
            self._given.append(running.activity)

    def finish(self) -> None:
        """Complete the descriptor under way and the writes of the count without descriptors."""
        self.close()
        self._release_all()

    def _release_all(self) -> None:
        while self._rings:
            self._release(self._rings.popleft())

    def _release(self, ring: Ring) -> None:
        if not ring.begun:
            self._given.append(ring.activity)


def _descriptor(one: Transaction, title: str, cause: int | None) -> Activity:
    kind, time = ActivityKind.DESCRIPTOR, one.time
    return Activity(one.number, kind, one.device, title, time, time, cause=cause)


def _through_windows(activity: Activity) -> str:
    """Return where the peer's memory was read and written, for a title."""
    words = ""
    for tlp, way in ((Tlp.MEMORY_READ, "from"), (Tlp.MEMORY_WRITE, "to")):
        through = [one for one in activity.transactions if one.remote and one.tlp is tlp]
        if through:
            first = through[0]
            words += f", {way} {first.address:#x} of {host_of(first.device)}"
    return words
