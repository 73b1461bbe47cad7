"""The time model: a profile's constants times the counts of each transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.host_tools.analyzer.analysis import Role, Transaction, Transfer
from bluebridge.host_tools.analyzer.model.counts import POSTS, EventCounts, count
from bluebridge.host_tools.analyzer.model.profile import Profile, read_profile

AHEAD = (Role.RECEIVE_WQE, Role.DOORBELL_RECORD)


@dataclass(frozen=True, slots=True)
class Model:
    """A `TimeModel` for the analyzer: times in microseconds from a profile."""

    profile: Profile

    @property
    def name(self) -> str:
        """Name of the profile."""
        return self.profile.name

    def times(self, transfer: Transfer) -> Sequence[float | None]:
        """Modelled microseconds at which each transaction is done, 0 when software posts.

        The transactions of one machine follow one another; the peer begins when the message
        arrives, the sender continues when the response arrives, or at once without one. What comes
        through a bridge's window is done after all that its sender did before. Receive
        entries and doorbell records delay nothing, since adapters read them ahead. None for what is
        not timed.
        """
        return [None if done is None else done.time(self.profile) for done in self._done(transfer)]

    def latency(self, transfer: Transfer) -> float:
        """Modelled microseconds from posting to the arrival of the message.

        It arrives at the peer, which polls its memory or its completion queue; the data of reads
        and atomics arrive at the sender. 0 for a transfer without a timed transaction.
        """
        return self.latency_counts(transfer).time(self.profile)

    def latency_counts(self, transfer: Transfer) -> EventCounts:
        """Count the events that make up `latency`."""
        done = self._done(transfer)
        for remote in (True, False):
            ends = [
                counts
                for each, counts in zip(transfer.transactions, done, strict=True)
                if counts is not None
                and each.remote == remote
                and each.role in (Role.PAYLOAD_WRITE, Role.CQE)
            ]
            if ends:
                return ends[-1]
        return EventCounts()

    def cpu(self, transfer: Transfer) -> float:
        """Modelled microseconds of the sender's processor: the stores of posting, with writes."""
        parts = count(transfer, self.profile.stores)
        return sum(
            counts.time(self.profile)
            for each, counts in zip(transfer.transactions, parts, strict=True)
            if counts is not None and each.role in POSTS
        )

    def _done(self, transfer: Transfer) -> list[EventCounts | None]:
        """The counts of each transaction and of all before it on its critical path."""
        here, there = EventCounts(), EventCounts()
        done: list[EventCounts | None] = []
        for each, counts in zip(
            transfer.transactions, count(transfer, self.profile.stores), strict=True
        ):
            if counts is None:
                done.append(None)
            elif each.role is Role.REQUEST:
                # Without a response the sender's completion follows the request.
                here = there = here + counts
                done.append(there)
            elif each.role is Role.RESPONSE:
                here = there
                done.append(here)
            elif _crosses(transfer, each):
                if each.remote:
                    there = here + counts
                else:
                    here = there + counts
                done.append(there if each.remote else here)
            elif each.role in AHEAD:
                done.append((there if each.remote else here) + counts)
            elif each.remote:
                there = there + counts
                done.append(there)
            else:
                here = here + counts
                done.append(here)
        return done


def _crosses(transfer: Transfer, each: Transaction) -> bool:
    """Whether the other machine stored it through a bridge's window."""
    if each.role not in (Role.WINDOW, Role.INTERRUPT) or each.parent is None:
        return False
    return transfer.transactions[each.parent].remote != each.remote


def load(place: str) -> Model:
    """The model of a built-in profile by its name, or of a file; raises `ProfileError`."""
    return Model(read_profile(place))
