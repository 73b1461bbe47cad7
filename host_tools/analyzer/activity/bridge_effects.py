"""Causes of what bridges and DMA engines do: accesses, stores, doorbells, descriptors."""

from __future__ import annotations

from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.ntb.uses import Uses
from bluebridge.host_tools.analyzer.activity.activity import MAX_PARTS, Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.commands import PAUSE_SECONDS
from bluebridge.host_tools.analyzer.transaction import OK, Role, Tlp, Transaction

MOST_STORES = 256
"""Stores of one activity at most, since a copy into a window can be endless."""
MOST_READS = 1024
"""Reads at the peer that wait at most for the access that they answer."""
LOST = "nothing arrived"
UNANSWERED = "all ones: the window shows nothing"

PATIENCE_SECONDS = 3.0
"""Seconds after which a doorbell that was not cleared is complete: a bridge holds one for two."""
MOST_WAITING = 64
"""Messages of one slot that wait at most for those before them."""
MOST_PARTS = 32
"""Transactions of one doorbell at most, since a guest may poll it endlessly."""


def mark_remote(activity: Activity, one: Transaction) -> None:
    """Note whether a transaction is on the bus of another machine than its activity."""
    one.remote = host_of(one.device) != host_of(activity.device)


class Cause:
    """An access, a store, a doorbell or a descriptor under way, with its `activity`."""

    activity: Activity
    place = 0  # of the transaction in it that effects follow from

    def effect(self, one: Transaction) -> bool:
        """List a transaction with its cause; return False if this cannot have caused it."""
        if len(self.activity.transactions) >= MAX_PARTS:
            return False
        mark_remote(self.activity, one)
        self.activity.add(one, self.place)
        return True

    def end(self) -> Activity | None:
        """End the wait for immediate effects; return the activity if it is complete by that."""
        return None


class Access(Cause):
    """An access, a reset or a change of the link; `unmasks`: it lets doorbells interrupt."""

    def __init__(self, activity: Activity, *, unmasks: bool = False) -> None:
        self.activity = activity
        self.unmasks = unmasks

    def end(self) -> Activity:
        """Return the activity, which is then complete."""
        return self.activity

    def continues(self, one: Transaction) -> bool:
        """Return whether an access of config space continues this one, as drivers make them."""
        run = self.activity
        return (
            run.kind is ActivityKind.CONFIG
            and run.device == one.device
            and one.time - run.end < PAUSE_SECONDS
            and len(run.transactions) < MAX_PARTS
        )

    def go_on(self, one: Transaction) -> None:
        """Add the next access of config space to the activity."""
        self.place = self.activity.add(one)


class WindowAccess(Cause):
    """A run of stores, or of reads, of one processor at ascending addresses of a window."""

    def __init__(self, one: Transaction, arrivals: list[Transaction], words: str = "") -> None:
        """`arrivals` preceded a read; `words` name the peer's register that it meets."""
        self.writes = one.tlp is Tlp.MEMORY_WRITE
        first = arrivals[0] if arrivals else one
        kind = ActivityKind.ACCESS if words else ActivityKind.STORE
        self.activity = Activity(first.number, kind, one.device, words, first.time, one.time)
        self._to_register = bool(words)
        self.place = len(arrivals)
        for each in arrivals:
            self._arrive(each)
        way = "store into" if self.writes else "load from"
        one.text = words or f"{way} BAR{one.bar}+{one.address:#x}"
        self._root = one
        one.role = Role.WINDOW_STORE if self.writes else Role.WINDOW_LOAD
        self.activity.add(one)
        self._last: Transaction | None = arrivals[-1] if arrivals else None

    def continues(self, one: Transaction) -> bool:
        """Return whether an access of the same kind begins where this run ends."""
        root = self._root
        return (
            one.tlp is root.tlp
            and one.device == root.device
            and one.bar == root.bar
            and one.address == root.address + root.length
            and root.stores < MOST_STORES
            and len(self.activity.transactions) < MAX_PARTS
            and not self._to_register
            and not self.activity.status
        )

    def go_on(self, one: Transaction, arrivals: list[Transaction]) -> None:
        """Add the next access of the run, with its arrivals."""
        join(self._root, one)
        self.activity.end = max(self.activity.end, one.time)
        for each in arrivals:
            self.effect(each)

    def effect(self, one: Transaction) -> bool:
        """List an arrival; join it to the one before if it continues that."""
        last = self._last
        if (
            last is not None
            and last.role is Role.WINDOW
            and one.role is Role.WINDOW
            and one.address == last.address + last.length
        ):
            join(last, one)
            self.activity.end = max(self.activity.end, one.time)
            return True
        self._arrive(one)
        self._last = one
        return True

    def _arrive(self, one: Transaction) -> None:
        mark_remote(self.activity, one)
        self.activity.add(one, self.place)

    def end(self) -> Activity:
        """Return the complete activity with its title and status."""
        activity = self.activity
        if not self._to_register:
            activity.title = self._title()
        if not activity.status:
            parts = activity.transactions
            bytes_through = sum(one.length for one in parts if one is not self._root)
            whole = self._to_register or bytes_through >= self._root.length
            activity.status = OK if whole else _missing(bytes_through, self._root)
        return activity

    def _title(self) -> str:
        root, last = self._root, self._last
        way, sign = ("store", ">") if self.writes else ("load", "<")
        found = f"{way} {root.length} bytes BAR{root.bar}+{root.address:#x}"
        if last is None:
            return found
        machine = host_of(last.device)
        if last.role is Role.INTERRUPT:
            return f"{found} {sign} interrupt message of {machine}"
        first = next(one for one in self.activity.transactions if one is not root)
        return f"{found} {sign} {first.address:#x} of {machine}"


def _missing(arrived: int, root: Transaction) -> str:
    if arrived:
        return f"only {arrived} of {root.length} bytes arrived"
    return LOST if root.tlp is Tlp.MEMORY_WRITE else UNANSWERED


def join(first: Transaction, one: Transaction) -> None:
    """Add to an access the one that follows at the next address, as one transaction."""
    if len(first.data) == first.length:
        first.data = bytes(first.data) + bytes(one.data)
    first.length += one.length
    first.stores += one.stores
    first.last = one.number


class Rung(Cause):
    """A doorbell or a message under way; `bits` are those that the guest has not cleared."""

    def __init__(self, activity: Activity, bits: int) -> None:
        self.activity = activity
        self.bits = bits
        self.parent = 0  # place of the transaction that led to what the guest does
        self.interrupted = 0  # bits whose interrupt was raised
        self.last = activity.begin
        self.answered = False

    def interrupt(self, one: Transaction, bits: int, cause: int) -> None:
        """List the interrupt of some of the bits, caused by the transaction at place `cause`."""
        self.parent = self.activity.add(one, cause)
        self.interrupted |= bits
        self.last = one.time

    def reaction(self, one: Transaction, clears: int) -> None:
        """List an access by which the guest reads pending bits, or clears those of `clears`."""
        self.activity.add(one, self.parent)
        self.bits &= ~clears
        self.answered = True
        self.last = one.time

    def unmasked(self, access: Activity) -> int:
        """List the access by which the guest unmasks the doorbell; return its place."""
        first, *effects = access.transactions
        place = self.activity.add(first, 0)
        first.remote = True
        for effect in effects:
            self.activity.add(effect, place)
        return place

    def finished(self) -> Activity:
        """Return the activity with its status."""
        if not self.activity.status:
            done = self.interrupted or self.answered
            self.activity.status = OK if done else "no interrupt"
        return self.activity


class Doorbells:
    """The doorbells that the peer has rung on one function, with its messages as further bits."""

    def __init__(self, uses: Uses, given: list[Activity]) -> None:
        """Complete activities are added to `given`."""
        self._uses = uses
        self._messages = -1 << uses.first_message
        self.vectors: dict[int, int] = {}  # that software chose, by the bit of the doorbell
        self._rung: list[Rung] = []  # in the order of ringing
        self._given = given

    def bits_of(self, vector: int) -> int:
        """Return the bits that a vector announces; all of them where the log does not say."""
        each = self._uses.doorbells_per_vector
        if each:
            return ((1 << each) - 1) << vector * each
        if not self.vectors:
            return -1
        return sum(1 << bit for bit, chosen in self.vectors.items() if chosen == vector)

    def ring(self, activity: Activity, bits: int) -> Rung:
        """Begin a ring; an unseen earlier ring of the same bits is completed."""
        rung = Rung(activity, bits)
        for each in self._rung:
            each.bits &= ~bits
        self._sweep()
        self._rung.append(rung)
        return rung

    def message_bit(self, slot: int) -> int:
        """Return the bit that stands for a message slot, from `Uses.first_message` on."""
        return 1 << (self._uses.first_message + slot)

    def message(self, activity: Activity, slot: int) -> Rung:
        """Begin a message of the peer; earlier ones in the slot are delivered first."""
        bit = self.message_bit(slot)
        before = [each for each in self._rung if each.bits & bit]
        if len(before) >= MOST_WAITING:
            before[0].bits = 0
            self._sweep()
        rung = Rung(activity, bit)
        self._rung.append(rung)
        return rung

    def waiting(self, bits: int) -> Rung | None:
        """Return the first ring of some of the bits without an interrupt, None without one."""
        for each in self._rung:
            if each.bits & bits & ~each.interrupted:
                return each
        found = self.delivered(bits & self._messages)
        return found if found and len(found.activity.transactions) < MOST_PARTS else None

    def delivered(self, bits: int) -> Rung | None:
        """Return the first ring with some of the bits; for messages the one in the slot."""
        return next((each for each in self._rung if each.bits & bits), None)

    def reaction(self, one: Transaction, bits: int, *, clears: bool) -> bool:
        """Take a read of set bits, or a write that clears them; return whether it was listed."""
        found = self.delivered(bits)
        if found is None:
            return False
        listed = clears or len(found.activity.transactions) < MOST_PARTS
        if listed:
            found.reaction(one, bits if clears else 0)
        if clears:
            # Clear the bits in later rings, too; for messages only in that in the slot.
            low = bits & ~self._messages
            for each in self._rung:
                if each is not found and each.bits & low:
                    each.bits &= ~low
                    each.answered = True
        self._sweep()
        return listed

    def expire(self, before: float) -> None:
        """Complete the rings that have had no event since `before`, in seconds."""
        for each in self._rung:
            if each.last < before:
                each.bits = 0
        self._sweep()

    def reset(self) -> None:
        """Complete all rings and forget the vectors that software chose."""
        self.vectors.clear()
        self.finish()

    def finish(self) -> None:
        """Complete all rings."""
        self._given += [each.finished() for each in self._rung]
        self._rung = []

    def _sweep(self) -> None:
        if any(not each.bits for each in self._rung):
            self._given += [each.finished() for each in self._rung if not each.bits]
            self._rung = [each for each in self._rung if each.bits]
