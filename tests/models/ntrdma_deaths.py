"""How a side of NTRDMA's world ends and comes back, and how links do."""

from __future__ import annotations

from enum import Enum, auto

from tests.models.ntrdma_completing import Completing

ABSENCES = (0.0, 0.001, 0.5, 3.0, 12.0)
"""Seconds that a side may be away."""


class Death(Enum):
    """What happens to a side."""

    KILLED = auto()
    """Its process: what is in flight lands in part; the next one has the same memory."""
    REBOOTED = auto()
    """Its machine: the next one has other bytes in memory, and no scratchpads."""
    RELOADED = auto()
    """Its driver: it parts from the peer, and begins anew."""


class Deaths(Completing):
    """Ends sides and links, and brings them back after a time."""

    back_at: float | None = None
    """When the link is there again; None while it is."""

    def link(self, up: bool) -> None:
        """The link goes or comes, and both sides are told."""
        for side in self.sides:
            side.transport.connected = up
            side.transport.lost = 0
            side.link_events.append(up)
        if up:
            self.back_at = None

    def come_back(self) -> None:
        """The link is there again, if it is time.

        What was stored in between is lost, and a link takes longer to come back than an interrupt
        to tell that it went: both sides know by then.
        """
        if self.back_at is not None and self.now >= self.back_at:
            lost = any(side.transport.lost for side in self.sides)
            for side in self.sides:
                while lost and side.link_events:
                    side.engine.link(side.link_events.popleft(), self.now)
            self.link(True)

    def die(self, number: int, how: Death = Death.KILLED, away: float = 0.0) -> None:
        """A side ends, and one that knows nothing begins on the same machine."""
        self.deaths += 1
        dead, peer = self.sides[number], self.sides[1 - number]
        if how is Death.RELOADED:
            self._reload(number)
        dead.transport.die(self.chance)
        machine = self.machines[number]
        machine.let_in, machine.interrupts = False, 0
        if how is Death.REBOOTED:
            machine.memory[:] = self.chance.randbytes(len(machine.memory))
            machine.spads[:] = [0] * len(machine.spads)
        self._forget(number)
        self.sides[number] = self.life(number)
        self.begin(number)
        for end in peer.ends:
            end.connected = False
        peer.transport.connected = False
        peer.link_events.append(False)
        self.back_at = self.now + away
        self.come_back()

    def _reload(self, number: int) -> None:
        dead = self.sides[number]
        dead.engine.part(self.now)
        dead.land()
        dead.engine.close()
        self.poll(number)
        assert not dead.transport.in_flight, "a closed side stores into its peer"

    def _forget(self, number: int) -> None:
        """The operations of a side that has ended."""
        for key in [key for key, each in self.operations.items() if each.number == number]:
            del self.operations[key]
        for operation in self.operations.values():
            operation.orphan = True
