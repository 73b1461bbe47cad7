"""The time model: a profile's constants times what the log counted, transaction by transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.device.buslog.analysis import Role, Transfer
from bluebridge.device.buslog.model.counts import POSTS, Counts, count
from bluebridge.device.buslog.model.profile import Profile, read_profile

AHEAD = (Role.RECEIVE_WQE, Role.DOORBELL_RECORD)


@dataclass(frozen=True, slots=True)
class Model:
    """A `TimeModel` of the analyzer."""

    profile: Profile

    @property
    def name(self) -> str:
        """Name of the profile."""
        return self.profile.name

    def times(self, transfer: Transfer) -> Sequence[float | None]:
        """Modelled microseconds at which each transaction is done, 0 when software posts.

        What happens on one machine happens in a row; the peer begins when the message arrives,
        the sender goes on when the answer does, or at once when there is none. Nobody waits for
        receive entries and doorbell records, which adapters read ahead. None for what is not timed.
        """
        return [None if done is None else done.time(self.profile) for done in self._done(transfer)]

    def latency(self, transfer: Transfer) -> float:
        """Modelled microseconds until whoever waits for the message has it.

        That is the peer, which polls its memory or its completion queue; for reads and atomics it
        is the sender. 0 for a transfer of which the log has nothing that is timed.
        """
        return self.path(transfer).time(self.profile)

    def path(self, transfer: Transfer) -> Counts:
        """What happened until then, counted."""
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
        return Counts()

    def cpu(self, transfer: Transfer) -> float:
        """Modelled microseconds that posting costs the sender's processor: its stores, written."""
        parts = count(transfer, self.profile.stores)
        return sum(
            counts.time(self.profile)
            for each, counts in zip(transfer.transactions, parts, strict=True)
            if counts is not None and each.role in POSTS
        )

    def _done(self, transfer: Transfer) -> list[Counts | None]:
        """What has happened up to each transaction, on the way that led to it."""
        here, there = Counts(), Counts()
        done: list[Counts | None] = []
        for each, counts in zip(
            transfer.transactions, count(transfer, self.profile.stores), strict=True
        ):
            if counts is None:
                done.append(None)
            elif each.role is Role.REQUEST:
                # Without an answer the sender's completion follows the message that has gone out.
                here = there = here + counts
                done.append(there)
            elif each.role is Role.RESPONSE:
                here = there
                done.append(here)
            elif each.role in AHEAD:
                done.append((there if each.remote else here) + counts)
            elif each.remote:
                there = there + counts
                done.append(there)
            else:
                here = here + counts
                done.append(here)
        return done


def load(place: str) -> Model:
    """The model of a built-in profile by its name, or of a file; raises `ProfileError`."""
    return Model(read_profile(place))
