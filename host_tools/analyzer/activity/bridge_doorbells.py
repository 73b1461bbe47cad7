"""Doorbells and messages that a bridge has received and that its guest has not cleared yet."""

from __future__ import annotations

from bluebridge.device.layout.ntb.uses import Uses
from bluebridge.host_tools.analyzer.activity.activity import Activity
from bluebridge.host_tools.analyzer.activity.bridge_causes import mark_remote
from bluebridge.host_tools.analyzer.activity.open_activities import MAX_PARTS
from bluebridge.host_tools.analyzer.transaction import OK, Transaction

PATIENCE_SECONDS = 3.0
"""Seconds after which a doorbell that was not cleared is completed.

A bridge holds one for two seconds (`bluebridge.device.ntb.switchtec_doorbells`).
"""
MOST_WAITING = 64
"""Messages of one slot that wait at most for those before them."""
MOST_PARTS = 32
"""Transactions of one doorbell at most, since a guest may poll it endlessly."""


class Rung:
    """A doorbell or a message under way; `bits` are those that the guest has not cleared."""

    __slots__ = ("activity", "answered", "bits", "interrupted", "last", "parent")

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

    def effect(self, one: Transaction) -> bool:
        """List an immediate effect of the ringing."""
        if len(self.activity.transactions) >= MAX_PARTS:
            return False
        mark_remote(self.activity, one)
        self.activity.add(one, 0)
        return True

    def end(self) -> None:
        """Do nothing and return None, since a doorbell still waits for the guest."""

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
        self._vectors: dict[int, int] = {}
        self._rung: list[Rung] = []  # in the order of ringing
        self._given = given

    def set_vector(self, bit: int, vector: int) -> None:
        """Note the MSI-X vector that software chose for a bit of the doorbells."""
        self._vectors[bit] = vector

    def bits_of(self, vector: int) -> int:
        """Return the bits that a vector announces; all of them where the log does not say."""
        each = self._uses.doorbells_per_vector
        if each:
            return ((1 << each) - 1) << vector * each
        if not self._vectors:
            return -1
        return sum(1 << bit for bit, chosen in self._vectors.items() if chosen == vector)

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
        return 1 << self._uses.first_message + slot

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
        for each in self._rung:
            if each.bits & bits:
                return each
        return None

    def reaction(self, one: Transaction, bits: int, *, clears: bool) -> bool:
        """Take a read of set bits, or a write that clears them; return whether it was listed."""
        found = self.delivered(bits)
        if found is None:
            return False
        listed = clears or len(found.activity.transactions) < MOST_PARTS
        if listed:
            found.reaction(one, bits if clears else 0)
        if clears:
            self._clear_rest(bits, found)
        self._sweep()
        return listed

    def _clear_rest(self, bits: int, first: Rung) -> None:
        """Clear the bits in later rings, too; for messages only in that in the slot."""
        low = bits & ~self._messages
        for each in self._rung:
            if each is not first and each.bits & low:
                each.bits &= ~low
                each.answered = True

    def expire(self, before: float) -> None:
        """Complete the rings that have had no event since `before`, in seconds."""
        for each in self._rung:
            if each.last < before:
                each.bits = 0
        self._sweep()

    def reset(self) -> None:
        """Complete all rings and forget the vectors that software chose."""
        self._vectors.clear()
        self.finish()

    def finish(self) -> None:
        """Complete all rings."""
        self._given += [each.finished() for each in self._rung]
        self._rung = []

    def _sweep(self) -> None:
        if any(not each.bits for each in self._rung):
            self._given += [each.finished() for each in self._rung if not each.bits]
            self._rung = [each for each in self._rung if each.bits]
